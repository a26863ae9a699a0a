"""How two filters relate: proven where that can be proven, else shown by messages that tell them apart."""

from filtering.relation.relation import Kind, Relation, relation
from filtering.relation.satisfying import NONE, UNKNOWN, Message, satisfying
from filtering.relation.traits import Trait, common_traits

__all__ = [
    "NONE",
    "UNKNOWN",
    "Kind",
    "Message",
    "Relation",
    "Trait",
    "common_traits",
    "relation",
    "satisfying",
]

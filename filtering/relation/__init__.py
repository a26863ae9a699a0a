"""How two filters relate: a proof if there is one, and example messages that only one of them delivers."""

from filtering.relation.relation import Kind, Relation, relation
from filtering.relation.satisfying import NONE, UNKNOWN, Message, satisfying
from filtering.relation.traits import Trait, common_traits

__all__ = ["NONE", "UNKNOWN", "Kind", "Message", "Relation", "Trait", "common_traits", "relation", "satisfying"]

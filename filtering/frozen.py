"""Data classes that only the type checker keeps from being changed, for objects of which a night makes very many.

Python's own frozen classes set each attribute through ``object.__setattr__``: to make one takes three times as long.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

_Class = TypeVar("_Class")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[_Class]) -> type[_Class]:
    """A data class with slots whose objects are equal, and hashed, by their attributes."""
    return dataclass(slots=True, unsafe_hash=True)(cls)


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def frozen_identity(cls: type[_Class]) -> type[_Class]:
    """A data class with slots, each of whose objects equals itself alone."""
    return dataclass(slots=True, eq=False)(cls)

"""Data classes that only the type checker keeps from being changed.

Python's own frozen classes set each attribute through ``object.__setattr__``: to make an object takes three times as
long. And for each class it compiles six methods from source, which took a fifth of a short command; here it is one,
``__init__``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform, overload

_Class = TypeVar("_Class")


@overload
def frozen(cls: type[_Class], /) -> type[_Class]: ...
@overload
def frozen(*, eq: bool = True, slots: bool = False) -> Callable[[type[_Class]], type[_Class]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: Any = None, /, *, eq: bool = True, slots: bool = False) -> Any:
    """A data class whose objects are equal, and hashed, by their attributes; without ``eq``, each equals itself alone.

    ``slots``: for objects of which a night makes very many.
    """
    if cls is None:
        return partial(frozen, eq=eq, slots=slots)
    made: Any = dataclass(repr=False, eq=False, slots=slots)(cls)
    shown = [each.name for each in fields(made) if each.repr]
    methods: dict[str, Callable[..., Any]] = {"__repr__": _repr_of(shown)}
    if eq:
        methods |= _comparison_of([each.name for each in fields(made) if each.compare])
    own = vars(cls)
    for name, method in methods.items():
        if own.get(name) is None:  # Python sets __hash__ to None in a class with an __eq__ of its own.
            setattr(made, name, method)
    return made


def _repr_of(names: list[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def text(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return text


def _comparison_of(names: list[str]) -> dict[str, Callable[..., Any]]:
    """``__eq__`` and ``__hash__`` by the attributes ``names``."""
    if len(names) > 1:
        values: Callable[[Any], tuple[Any, ...]] = attrgetter(*names)
    else:

        def values(self: Any) -> tuple[Any, ...]:
            return tuple([getattr(self, name) for name in names])

    def equals(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: Any) -> int:
        return hash(values(self))

    return {"__eq__": equals, "__hash__": hashed}

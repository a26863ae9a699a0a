"""Data classes that are frozen for the type checker only behave as Python's own do otherwise."""

from __future__ import annotations

import pickle
from dataclasses import field, replace

import pytest

from filtering.frozen import frozen


@frozen
class Point:
    x: int
    y: int
    name: str = field(default="", compare=False)
    shown: int = field(default=0, repr=False)


@frozen(slots=True)
class One:
    value: float


@frozen(eq=False)
class Alone:
    value: int


@frozen
class WithOwnEquality:
    value: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WithOwnEquality)


def test_objects_are_equal_and_hashed_by_their_attributes() -> None:
    assert Point(1, 2, "a") == Point(1, 2, "b")
    assert len({Point(1, 2, "a"), Point(1, 2, "b"), Point(1, 3)}) == 2
    assert Point(1, 2) != Point(1, 2, shown=1)
    assert One(1.0) == One(1.0) != One(2.0)
    assert {One(1.0): "one"}[One(1.0)] == "one"


def test_objects_of_other_classes_are_not_equal() -> None:
    assert One(1).__eq__(Alone(1)) is NotImplemented
    assert Point(1, 2).__eq__((1, 2, "", 0)) is NotImplemented


def test_an_attribute_equals_itself_as_in_a_tuple() -> None:
    not_a_number = float("nan")
    assert One(not_a_number) == One(not_a_number)


def test_without_eq_each_object_equals_itself_alone() -> None:
    assert Alone(1) != Alone(1)
    assert len({Alone(1), Alone(1)}) == 2


def test_a_class_keeps_an_equality_of_its_own_and_can_be_hashed() -> None:
    assert WithOwnEquality(1) == WithOwnEquality(2)
    assert hash(WithOwnEquality(1)) == hash(WithOwnEquality(1))


def test_the_text_has_the_attributes_that_are_to_be_shown() -> None:
    assert repr(Point(1, 2, "a")) == "Point(x=1, y=2, name='a')"
    assert repr(One(1.5)) == "One(value=1.5)"


@pytest.mark.parametrize("value", [Point(1, 2), One(1.0)])
def test_objects_can_be_pickled(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value


def test_changed_copies() -> None:
    assert replace(Point(1, 2), y=3) == Point(1, 3)

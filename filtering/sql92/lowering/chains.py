"""Chains of AND or OR, whose operands are evaluated in order until one decides or fails."""

from __future__ import annotations

from collections.abc import Sequence

from filtering.predicate import FALSE, Predicate
from filtering.sql92.normal_form.form import Form

_NESTED = 8
"""A chain of more steps is split in halves: predicates that nest deeply are slow to combine."""


def decided(form: Form, deciding: Sequence[Predicate], failing: Sequence[Predicate]) -> Predicate:
    """True if an operand decides the chain (TRUE for OR, FALSE for AND) and no operand before it fails.

    ``deciding[i]`` is true if operand i decides, ``failing[i]`` if it fails. They exclude each other. So an operand
    joins the step before it if nothing fails there, or what fails here: that did not fail if the operand decides.
    A failure is tested once.
    """
    steps: list[tuple[list[Predicate], Predicate]] = []
    seen: set[Predicate] = {FALSE}
    for decides, fails in zip(deciding, failing, strict=True):
        if steps and steps[-1][1] in (FALSE, fails):
            steps[-1][0].append(decides)
            steps[-1] = steps[-1][0], FALSE if fails in seen and steps[-1][1] is FALSE else fails
        else:
            steps.append(([decides], FALSE if fails in seen else fails))
        seen.add(fails)
    return _first(form, [(form.any_of(deciders), fails) for deciders, fails in steps])


def failed(form: Form, deciding: Sequence[Predicate], failing: Sequence[Predicate]) -> Predicate:
    """True if an operand fails, unless one before it decides. One that fails like an earlier one only decides."""
    steps: list[tuple[Predicate, list[Predicate]]] = []
    seen: set[Predicate] = {FALSE}
    for decides, fails in zip(deciding, failing, strict=True):
        if steps and fails in seen:
            steps[-1][1].append(decides)
        else:
            steps.append((fails, [decides]))
        seen.add(fails)
    return _first(form, [(fails, form.any_of(deciders)) for fails, deciders in steps])


def _first(form: Form, steps: list[tuple[Predicate, Predicate]]) -> Predicate:
    """True if ``wanted`` of a step ``(wanted, ending)`` is true and ``ending`` is false in all steps before it."""
    if len(steps) > _NESTED:
        middle = len(steps) // 2
        ending = form.any_of(end for _, end in steps[:middle])
        later = form.all_of([form.negation(ending), _first(form, steps[middle:])])
        return form.any_of([_first(form, steps[:middle]), later])
    result = steps[-1][0]
    for wanted, ending in reversed(steps[:-1]):
        result = form.any_of([wanted, form.all_of([form.negation(ending), result])])
    return result

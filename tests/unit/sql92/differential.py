"""Ask a real broker's classes what they make of random expressions, and compare.

    python -m tests.unit.sql92.differential ORACLE [PAIRS] [SEED]

ORACLE is a command that reads JSON lines ``{"expression", "cases": [{"properties"}]}`` and answers them
with ``compiles`` and a ``result`` for each case: TRUE, FALSE, NULL or ERROR.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections import Counter
from random import Random
from typing import Any

from filtering.predicate import holds
from filtering.sql92 import EvaluationError, InvalidExpression, compile
from tests.unit.sql92.generator import Generator

MESSAGES = 10
BATCH = 2000
OUTCOMES = {True: "TRUE", False: "FALSE", None: "NULL"}


def disagreements(answer: dict[str, Any]) -> list[str]:
    """What differs between the broker's answer to one expression and ours."""
    expression = answer["expression"]
    try:
        compiled = compile(expression)
    except InvalidExpression as error:
        return [f"{expression!r}: refused ({error.problem}), the broker takes it"] if answer["compiles"] else []
    if not answer["compiles"]:
        return [f"{expression!r}: accepted, the broker refuses it ({answer['error']})"]
    result = []
    for case in answer["cases"]:
        properties, expected = case["properties"] or {}, case["result"]
        try:
            outcome = OUTCOMES[compiled.evaluate(properties)]
        except EvaluationError:
            outcome = "ERROR"
        if outcome != expected:
            result.append(f"{expression!r} on {properties!r}: {outcome}, the broker says {expected}")
        if holds(compiled.predicate, properties) is not (expected == "TRUE"):
            result.append(f"{expression!r} on {properties!r}: the predicate is wrong, the broker says {expected}")
        if holds(compiled.error_predicate, properties) is not (expected == "ERROR"):
            result.append(f"{expression!r} on {properties!r}: the error predicate is wrong, the broker says {expected}")
    return result


def main(oracle: str, pairs: int = 200_000, seed: int = 1) -> int:
    generator = Generator(Random(seed))
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    while counts["pairs"] < pairs:
        questions = [
            {
                "expression": generator.expression(),
                "cases": [{"properties": generator.properties()} for _ in range(MESSAGES)],
            }
            for _ in range(BATCH)
        ]
        text = "\n".join(json.dumps(question) for question in questions)
        answers = subprocess.run(shlex.split(oracle), input=text.encode(), capture_output=True, check=True).stdout
        for line in answers.decode().split("\n"):
            if line:
                answer = json.loads(line)
                counts["compiled" if answer["compiles"] else "refused"] += 1
                counts["pairs"] += len(answer["cases"]) if answer["compiles"] else 0
                counts.update(str(case["result"]) for case in answer["cases"] if answer["compiles"])
                wrong += disagreements(answer)
        print(dict(counts), len(wrong), "disagreements", file=sys.stderr)
    print("\n".join(wrong[:50]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))

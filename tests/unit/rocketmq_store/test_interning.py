"""Texts of a log are numbered in the order of their first appearance."""

from __future__ import annotations

import random

import numpy as np
import pytest

from schemas.rocketmq_store.properties import Interner
from schemas.rocketmq_store.record_layout import binary_array
from schemas.rocketmq_store.segments import SLACK

LENGTHS = [*range(1, 27), 32, 33, 40, 41]


def alike(length: int) -> list[bytes]:
    """Texts that differ in one octet."""
    text = b"a" * length
    return [text, bytes(length), *(text[:at] + b"b" + text[at + 1 :] for at in range(length))]


def numbers(interner: Interner, texts: list[bytes]) -> list[int] | None:
    """The numbers of texts in a log, in which other octets stand between them."""
    lengths = np.array(list(map(len, texts)), np.int64)
    starts = np.cumsum([3, *(len(text) + 1 for text in texts)])[:-1]
    log = b"xyz" + b"".join(text + bytes([index % 251]) for index, text in enumerate(texts)) + b"z" * SLACK
    result = interner.numbers(np.frombuffer(log, np.uint8), starts, lengths)
    return None if result is None else result.tolist()


@pytest.mark.parametrize("seed", range(3))
def test_a_text_has_one_number_in_all_calls(seed: int) -> None:
    rng = random.Random(seed)
    every = [b"", *(text for length in LENGTHS for text in alike(length)), *(b"%d" % number for number in range(2_000))]
    every += [rng.randbytes(rng.choice([5_000, 30])) for _ in range(20)]
    interner = Interner()
    known: dict[bytes, int] = {}
    for most in (1, 100, 700, 5_000):
        texts = rng.choices(every, k=rng.randrange(most) + 1)
        before = len(known)
        assert numbers(interner, texts) == [known.setdefault(text, len(known)) for text in texts]
        assert binary_array(*interner.texts()).to_pylist() == list(known)
        assert binary_array(*interner.texts(before)).to_pylist() == list(known)[before:]


def test_texts_that_begin_and_end_alike() -> None:
    """A text must not be taken for another one in the slot where a text of up to 16 octets with its ends would be."""
    for seed in range(60):
        texts = [b"%08d%08d%08d" % (seed, number, seed) for number in range(120)]
        assert numbers(Interner(), texts * 2) == [*range(120)] * 2


def test_too_many_texts_have_no_numbers() -> None:
    texts = [b"%d" % number for number in range(128)]
    assert numbers(Interner(127), texts[:127]) == list(range(127))
    assert numbers(Interner(127), texts) is None
    assert numbers(Interner(), texts) == list(range(128))

"""Messages and subscriptions to measure filters on.

A message has eight properties: region (20 values), price (0 to 1000, two decimals), qty (0 to 500), color (12), level
(5), userId (a million), channel (30) and flag (true or false); color, channel and flag are each missing from 3 % of the
messages. A subscription has one to five conditions under AND, OR and NOT. ``subscriptions`` are broad: about three in
ten messages match one. ``selective_subscriptions`` are those of them that at most one message in fifty matches.
"""

import random

import numpy as np
import pyarrow as pa

from filtering.matcher import match

REGIONS = [
    *("cn-hangzhou", "cn-shanghai", "cn-beijing", "cn-shenzhen", "cn-hongkong", "ap-southeast-1", "ap-southeast-2"),
    *("ap-south-1", "ap-northeast-1", "us-east-1", "us-east-2", "us-west-1", "us-west-2", "eu-central-1", "eu-west-1"),
    *("eu-west-2", "me-east-1", "sa-east-1", "ca-central-1", "af-south-1"),
]
COLORS = ["red", "green", "blue", "white", "black", "grey", "yellow", "pink", "orange", "purple", "brown", "silver"]
LEVELS = ["bronze", "silver", "gold", "platinum", "diamond"]
CHANNELS = [f"ch{i:02}" for i in range(30)]
TEXTS = {"region": REGIONS, "color": COLORS, "level": LEVELS, "channel": CHANNELS}
MISSING = 0.03
SAMPLE = 5_000


def messages(count: int, seed: int) -> pa.RecordBatch:
    """One column of text a property."""
    rng = np.random.default_rng(seed)

    def random_texts(texts: list[str]) -> pa.Array:
        return pa.array(texts).take(pa.array(rng.integers(len(texts), size=count)))

    def some(column: pa.Array) -> pa.Array:
        return pa.array(np.where(rng.random(count) < MISSING, None, column.to_numpy(zero_copy_only=False)), pa.string())

    cents = rng.integers(100_000, size=count)
    return pa.record_batch(
        {
            "region": random_texts(REGIONS),
            "price": pa.array([f"{cent // 100}.{cent % 100:02}" for cent in cents.tolist()]),
            "qty": pa.array(rng.integers(501, size=count)).cast(pa.string()),
            "color": some(random_texts(COLORS)),
            "level": random_texts(LEVELS),
            "userId": pa.array(rng.integers(1_000_000, size=count)).cast(pa.string()),
            "channel": some(random_texts(CHANNELS)),
            "flag": some(random_texts(["true", "false"])),
        }
    )


def subscriptions(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [_expression(rng) for _ in range(count)]


def selective_subscriptions(count: int, seed: int) -> list[str]:
    rng, sample = random.Random(seed), messages(SAMPLE, seed)
    selective_expressions: list[str] = []
    while len(selective_expressions) < count:
        expressions = [_expression(rng) for _ in range(count)]
        counts = match(sample, expressions).counts()
        selective_expressions += [
            text for text, n in zip(expressions, counts.tolist(), strict=True) if 0 < n <= SAMPLE / 50
        ]
    return selective_expressions[:count]


def _expression(rng: random.Random) -> str:
    parts = [_condition(rng) for _ in range(rng.choice([1, 2, 2, 3, 3, 4, 5]))]
    parts = [f"NOT ({part})" if rng.random() < 0.08 else part for part in parts]
    while len(parts) > 1:
        at = rng.randrange(len(parts) - 1)
        both = f" {'AND' if rng.random() < 0.65 else 'OR'} ".join(parts[at : at + 2])
        parts[at : at + 2] = [f"({both})" if len(parts) > 2 else both]
    return parts[0]


def _condition(rng: random.Random) -> str:
    kind = rng.choices(
        [_text, _user, _texts, _between, _order, _presence, _flag], [0.20, 0.05, 0.20, 0.17, 0.24, 0.07, 0.07]
    )[0]
    return kind(rng)


def _text(rng: random.Random) -> str:
    name = rng.choice(list(TEXTS))
    return f"{name} {'=' if rng.random() < 0.85 else '<>'} '{rng.choice(TEXTS[name])}'"


def _user(rng: random.Random) -> str:
    return f"userId = {rng.randrange(1_000_000)}"


def _texts(rng: random.Random) -> str:
    name = rng.choice(list(TEXTS))
    texts = rng.sample(TEXTS[name], min(len(TEXTS[name]) - 1, rng.randint(2, 8)))
    return f"{name} {'IN' if rng.random() < 0.85 else 'NOT IN'} ({', '.join(repr(text) for text in texts)})"


def _between(rng: random.Random) -> str:
    name = rng.choices(["price", "qty", "userId"], [0.5, 0.3, 0.2])[0]
    if name == "price":
        low = round(rng.uniform(1, 900), 2)
        bounds = f"{low} AND {round(low + rng.uniform(5, 300), 2)}"
    elif name == "qty":
        least = rng.randint(0, 450)
        bounds = f"{least} AND {least + rng.randint(5, 150)}"
    else:
        least = rng.randrange(900_000)
        bounds = f"{least} AND {least + rng.randint(100, 200_000)}"
    return f"{name} {'BETWEEN' if rng.random() < 0.88 else 'NOT BETWEEN'} {bounds}"


def _order(rng: random.Random) -> str:
    name = rng.choices(["price", "qty", "userId"], [0.5, 0.35, 0.15])[0]
    bound = {"price": round(rng.uniform(1, 999), 2), "qty": rng.randint(1, 500), "userId": rng.randrange(1, 1_000_000)}
    return f"{name} {rng.choice(['>', '>=', '<', '<='])} {bound[name]}"


def _presence(rng: random.Random) -> str:
    return f"{rng.choice(['color', 'channel', 'flag'])} {rng.choice(['IS NULL', 'IS NOT NULL', 'IS NOT NULL'])}"


def _flag(rng: random.Random) -> str:
    return f"flag = {rng.choice(['TRUE', 'TRUE', 'FALSE'])}"

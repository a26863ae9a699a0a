"""A tag subscription as the broker holds it. Source: FilterAPI.buildSubscriptionData, SubscriptionData."""

from __future__ import annotations

from dataclasses import dataclass

from filtering.tags_code import java_hash

SUB_ALL = "*"
TAG = "TAG"
SQL92 = "SQL92"
# java.lang.String.trim drops every character up to U+0020 at both ends
_TRIMMED = "".join(map(chr, range(0x21)))


@dataclass(frozen=True, slots=True)
class SubscriptionData:
    """Which tags of ``topic`` are subscribed.

    ``tags_set`` are the tags as text, ``code_set`` their Java hashes; both are empty for
    ``sub_string`` ``*``, and for one of nothing but separators and blanks.
    """

    topic: str
    sub_string: str
    tags_set: frozenset[str]
    code_set: frozenset[int]


def build_subscription_data(topic: str, sub_string: str | None) -> SubscriptionData:
    """The subscription of a tag expression such as ``paid || shipped``.

    None, ``""`` and exactly ``*`` subscribe to all. Raises ValueError where ``sub_string`` is
    nothing but ``||``.
    """
    if not sub_string or sub_string == SUB_ALL:
        return SubscriptionData(topic, SUB_ALL, frozenset(), frozenset())
    parts = sub_string.split("||")
    if not any(parts):
        raise ValueError(f"subString split error: {sub_string!r} names no tag; write tags joined by ||, or * for all")
    tags = frozenset(filter(None, (part.strip(_TRIMMED) for part in parts)))
    return SubscriptionData(topic, sub_string, tags, frozenset(map(java_hash, tags)))


def is_tag_type(expression_type: str | None) -> bool:
    """Whether a subscription of this type is a tag subscription (ExpressionType.isTagType)."""
    return not expression_type or expression_type == TAG

"""A tag subscription as the broker keeps it. Source: FilterAPI.buildSubscriptionData, SubscriptionData."""

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
    """A subscription to tags of ``topic``.

    ``tags_set`` has the tags as text, ``code_set`` their Java hash codes. Both are empty if ``sub_string`` is ``*``,
    or if it contains only separators and blanks.
    """

    topic: str
    sub_string: str
    tags_set: frozenset[str]
    code_set: frozenset[int]


def build_subscription_data(topic: str, sub_string: str | None) -> SubscriptionData:
    """The subscription of a tag expression such as ``paid || shipped``.

    None, ``""`` and exactly ``*`` subscribe to all messages. Raises ValueError if ``sub_string`` contains only ``||``.
    """
    if not sub_string or sub_string == SUB_ALL:
        return SubscriptionData(topic, SUB_ALL, frozenset(), frozenset())
    if not any(sub_string.split("||")):
        raise ValueError(f"subString split error: {sub_string!r} names no tag; write tags joined by ||, or * for all")
    tags = tags_in(sub_string)
    return SubscriptionData(topic, sub_string, tags, frozenset(map(java_hash, tags)))


def tags_in(sub_string: str) -> frozenset[str]:
    """The tags that a tag expression lists, trimmed."""
    return frozenset(filter(None, (part.strip(_TRIMMED) for part in sub_string.split("||"))))


def is_tag_type(expression_type: str | None) -> bool:
    """Whether a subscription of this type is a tag subscription (ExpressionType.isTagType)."""
    return not expression_type or expression_type == TAG

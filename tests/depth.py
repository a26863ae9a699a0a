"""The number of examples in random tests; MQSIEVE_DEEP=1 means more: before a release, and after changes of rules."""

import os

DEEP = os.environ.get("MQSIEVE_DEEP") == "1"


def examples(usual: int, deep: int) -> int:
    """The number of examples that a test tries."""
    return deep if DEEP else usual

"""How far random tests go: MQSIEVE_DEEP=1, as .ci/run sets it, asks for more of the same."""

import os

DEEP = os.environ.get("MQSIEVE_DEEP") == "1"


def examples(usual: int, deep: int) -> int:
    """How many examples a test tries."""
    return deep if DEEP else usual

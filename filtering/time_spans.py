"""Times in milliseconds."""

DAY = 86_400_000
AFTER_YEAR_9999 = 253_402_300_800_000
"""The first time, since 1970, that Python and most readers of tables cannot represent."""
BEGINNING, FOREVER = -(2**63), 2**63 - 1
"""Before and after all others."""

"""Consume queue files: 20 bytes per entry (RocketMQ ConsumeQueue).

A file has a fixed size and is named by its offset in the queue, in bytes. Bytes not yet written are zero.
"""

import numpy as np

ENTRY = np.dtype([("commitlog_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
PRE_BLANK = (0, 2**31 - 1, 0)
"""The entry that the broker writes before the first entry of a queue that does not begin at 0."""

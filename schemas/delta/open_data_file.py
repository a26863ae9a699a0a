"""Opens Parquet files of tables for reading, and verifies the checksums of the pages that are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.delta.delta_log import TableDamaged
from schemas.storage import Storage


@contextmanager
def open_data_file(storage: Storage, path: str, read_dictionary: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
    """Opens a file of a table. ``read_dictionary``: columns to read as dictionaries.

    Raises TableDamaged if the file is not what was written.
    """
    try:
        with storage.file_system.open_input_file(path) as source:
            yield pq.ParquetFile(source, read_dictionary=list(read_dictionary), page_checksum_verification=True)
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise TableDamaged(
            f"{storage.root}/{path} is not what was written ({str(error).strip().splitlines()[0]}): put it back from a "
            "copy, or remove it, and nightly will say what can be rebuilt"
        ) from None

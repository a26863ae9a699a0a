"""mqsieve in a Spark session. Spark's workers must be able to import the package.

Workers start the Python in PYSPARK_PYTHON, or the first python3 in PATH. On one machine, activate the environment, or
set PYSPARK_PYTHON to its Python before the session starts; ``spark_session`` does that. Where workers compile the loops
for the first time, the first query takes up to a minute.

    from mqsieve import spark

    spark.match(orders, {"cg_expensive": "price > 50.0"}, properties="attributes")

    spark.register(session)
    session.read.format("rocketmq_commitlog").load("/backup/broker-a/store")
    session.read.format("mqsieve").option("table", "deliveries").load("/data/mqsieve")

``spark_session`` is a session on this machine with Delta Lake, or the active one. The messages that ``match`` takes
need not be in our tables, and a stream works as well, also in foreachBatch. The workers evaluate all expressions
together with the matcher of a night.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

from answers import spark_source
from filtering import sql92
from filtering.matcher import Matcher, packed_bits
from jobs.cli.session import spark_session
from schemas.errors import UsageError
from schemas.rocketmq_store import commitlog_source

__all__ = ["match", "register", "spark_session"]

GROUPS = "groups"


def match(rows: DataFrame, subscriptions: Mapping[str, str], properties: str = "properties") -> DataFrame:
    """The rows with a column ``groups`` (array of texts): the groups whose expression is TRUE for the row, in order.

    ``subscriptions``: the SQL92 expression of each group. ``properties``: the column with the message's properties, a
    map from text to text; null: it has none. Raises UsageError for another column, for a table that has ``groups``
    already, and for an expression that does not compile.
    """
    text = StringType()
    if properties not in rows.columns or rows.schema[properties].dataType not in (
        MapType(text, text, True),
        MapType(text, text, False),
    ):
        raise UsageError(f"{properties} must be a column with a map from text to text")
    if GROUPS in rows.columns:
        raise UsageError(f"the rows have a column {GROUPS} already: rename it first")
    predicates = []
    for group, expression in subscriptions.items():
        try:
            predicates.append(sql92.compile(expression).predicate)
        except ValueError as error:
            raise UsageError(f"{group}: {error}") from None
    matcher, names = Matcher(predicates), list(subscriptions)

    def with_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            matches = matcher.match(batch[properties])
            flags = packed_bits.unpack(matches.bits, batch.num_rows)
            offsets = np.append(0, np.cumsum(flags.sum(axis=0))).astype(np.int32)
            groups = pa.array(names, pa.string()).take(pa.array(np.nonzero(flags.T)[1]))
            yield batch.append_column(GROUPS, pa.ListArray.from_arrays(pa.array(offsets), groups))

    return rows.mapInArrow(with_groups, StructType([*rows.schema.fields, StructField(GROUPS, ArrayType(text))]))


def register(spark: SparkSession) -> None:
    """Registers the formats ``mqsieve``, ``rocketmq_commitlog`` and ``rocketmq_commitlog_damage`` with a session."""
    commitlog_source.register(spark)
    spark_source.register(spark)

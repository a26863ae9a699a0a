"""Rows made in Python as a DataFrame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def data_frame(spark: SparkSession, rows: Sequence[Mapping[str, Any]], columns: str) -> DataFrame:
    """``rows`` by column name, None where a name is missing; ``columns`` as DDL.

    They go to Spark as Arrow: a list of tuples would start Python workers to take it apart.
    """
    schema = cast(StructType, StructType.fromDDL(columns))
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=to_arrow_schema(schema)), schema)

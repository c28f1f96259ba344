"""Entry point for Spark under the name "sparklog": ``spark.read.format("sparklog")`` needs no register().

Spark imports ``pyspark_<format>`` and uses its `DefaultSource` (see pyspark.sql.datasource).
"""

from sparklog.spark.source.source import SparklogDataSource as DefaultSource

__all__ = ["DefaultSource"]

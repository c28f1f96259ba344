"""Classes of PySpark's data source API, with stand-ins for those that the running version lacks.

    4.0   batches: reads, and writes in Arrow. Streams: reads without limits
    4.1   filters, which Spark pushes into batches. Streams: writes in Arrow
    4.2   limits of triggers, and Trigger.AvailableNow that ends where it began

Managed platforms ship their own PySpark, often an older one. A stand-in lets a module be imported there; such a Spark
never creates one. `spark_version_error` is the error for a feature that the running version lacks.
"""

from __future__ import annotations

import inspect
from typing import Any

import pyspark
from pyspark.sql import datasource
from pyspark.sql.pandas import types
from pyspark.sql.types import StructType

from sparklog.base.errors import ConfigError

try:
    from pyspark.sql.streaming import datasource as limits
except ImportError:
    limits = None

HAS_STREAM_WRITES = hasattr(datasource, "DataSourceStreamArrowWriter")
HAS_LIMITS = limits is not None
_HAS_TIMEZONE = "timezone" in inspect.signature(types.to_arrow_schema).parameters


def spark_version_error(version: str, what: str) -> ConfigError:
    """Return the error for a feature of a later Spark.

    what: the feature as the subject of a sentence, such as `writeStream`
    """
    return ConfigError(f"{what} needs Spark {version}; this is Spark {pyspark.__version__}")


def arrow_schema(schema: StructType) -> Any:
    """Return the schema of the record batches that Spark takes for these columns."""
    return types.to_arrow_schema(schema, **({"timezone": "UTC"} if _HAS_TIMEZONE else {}))


def _stand_in(module: Any, name: str, base: type = object) -> Any:
    return getattr(module, name, None) or type(name, (base,), {"__doc__": "Not in this version of PySpark."})


Filter = _stand_in(datasource, "Filter")
EqualNullSafe = _stand_in(datasource, "EqualNullSafe")
EqualTo = _stand_in(datasource, "EqualTo")
GreaterThan = _stand_in(datasource, "GreaterThan")
GreaterThanOrEqual = _stand_in(datasource, "GreaterThanOrEqual")
In = _stand_in(datasource, "In")
IsNotNull = _stand_in(datasource, "IsNotNull")
LessThan = _stand_in(datasource, "LessThan")
LessThanOrEqual = _stand_in(datasource, "LessThanOrEqual")
StringStartsWith = _stand_in(datasource, "StringStartsWith")

DataSourceStreamArrowWriter = _stand_in(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter)

ReadLimit = _stand_in(limits, "ReadLimit")
ReadAllAvailable = _stand_in(limits, "ReadAllAvailable", ReadLimit)
ReadMaxBytes = _stand_in(limits, "ReadMaxBytes", ReadLimit)
ReadMaxRows = _stand_in(limits, "ReadMaxRows", ReadLimit)
ReadMinRows = _stand_in(limits, "ReadMinRows", ReadLimit)
SupportsTriggerAvailableNow = _stand_in(limits, "SupportsTriggerAvailableNow")

"""The classes that Spark loads, as a JVM has them once loaded (JEP 350): `python -m support.runs.class_archive PATH`.

Every JVM of the tests begins with the archive, and is where it should be two or three seconds of processor time sooner.
Another JDK, or other jars, do without it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from sparklog.spark.session import local_session
from support.processes.java import SPARK_OPTIONS, end_spark


def main() -> None:
    archive = Path(sys.argv[1])
    os.environ["SPARK_SUBMIT_OPTS"] = f"{SPARK_OPTIONS} -XX:ArchiveClassesAtExit={archive}"
    spark = local_session("classes")
    with tempfile.TemporaryDirectory() as folder:
        for mode in ("overwrite", "append"):
            spark.range(10).selectExpr("id", "id % 3 as part").write.format("delta").mode(mode).save(folder)
        spark.read.format("delta").load(folder).groupBy("part").count().orderBy("part").collect()
        spark.readStream.format("delta").load(folder).writeStream.format("noop").option(
            "checkpointLocation", f"{folder}/_checkpoint"
        ).trigger(availableNow=True).start().awaitTermination(60)
    end_spark(spark)


if __name__ == "__main__":
    main()

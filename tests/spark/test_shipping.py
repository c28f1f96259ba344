"""Pickles for tasks: on a machine that lacks a package, the error says so in one sentence."""

from __future__ import annotations

import base64
import gc
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import cloudpickle
from pyspark.errors import PythonException
from pyspark.sql.types import StringType, StructField, StructType

from sparklog import __version__
from sparklog.base.fs import LocalFs
from sparklog.spark.columns import table_schema
from sparklog.spark.shipping import error_text, task_function
from sparklog.spark.source.option_parsing import parse_read_options, parse_write_options
from sparklog.spark.source.option_table import OptionUse
from sparklog.spark.source.read import TopicReader
from sparklog.spark.source.stream import TopicStreamReader
from sparklog.spark.source.write import TopicStreamWriter, TopicWriter
from sparklog.spark.spark_api import HAS_STREAM_WRITES
from support.logs.transactional_folder import TransactionalFolder

pytestmark = pytest.mark.slow

READ = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}
WRITE = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "orders"}
ROWS = StructType([StructField("value", StringType())])
LOAD = """
import base64, pickle, sys

for missing in sys.argv[1:]:
    name, _, version = missing.partition("=")
    if version:
        __import__(name).__version__ = version
    else:
        sys.modules[name] = None
try:
    loaded = pickle.loads(base64.b64decode(sys.stdin.read()))
    if callable(loaded):
        loaded(iter(()))
except ImportError as refused:
    print(refused)
else:
    print("loaded")
"""


def loaded(pickled: bytes, *changes: str) -> str:
    """Return the output of a fresh process that loads the pickle without a module (NAME), or with another version
    (NAME=VERSION)."""
    command = [sys.executable, "-c", LOAD, *changes]
    given = base64.b64encode(pickled).decode()
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def sent(kind: str) -> bytes:
    match kind:
        case "a read":
            found: Any = TopicReader(parse_read_options(READ, OptionUse.BATCH), table_schema(include_headers=False))
        case "a stream":
            found = TopicStreamReader(parse_read_options(READ, OptionUse.STREAM), table_schema(include_headers=False))
        case "a write":
            found = TopicWriter(parse_write_options(WRITE), ROWS, overwrite=False)
        case "a written stream":
            found = TopicStreamWriter(parse_write_options(WRITE), ROWS)
        case _:

            def options_of(batches: Iterator[Any]) -> list[Any]:  # within a function: this module is not sent
                return [parse_read_options(READ, OptionUse.BATCH), *batches]

            found = task_function(options_of)
    return cloudpickle.dumps(found)


KINDS = ["a read", "a stream", "a write", "a function", *(["a written stream"] if HAS_STREAM_WRITES else [])]


@pytest.mark.parametrize("kind", KINDS)
def test_without_sparklog_one_sentence_says_where_and_what_to_do(kind):
    assert loaded(sent(kind), "sparklog") == (
        f"the Python on {socket.gethostname()} ({sys.executable}) has no sparklog; executors need sparklog "
        f"{__version__} and its packages, as the driver has them: install them there, or ship an environment with "
        "spark.archives"
    )


@pytest.mark.parametrize("name", ["pyarrow", "numba", "cramjam"])
def test_without_what_sparklog_requires(name):
    assert f" has no {name}; executors need sparklog" in loaded(sent("a read"), name)


def test_another_version_is_refused_before_it_misreads_anything():
    assert f" has sparklog 0.0.1; executors need sparklog {__version__} " in loaded(sent("a read"), "sparklog=0.0.1")


@pytest.mark.parametrize("kind", KINDS)
def test_with_all_of_it_the_same_thing_arrives(kind):
    assert loaded(sent(kind)) == "loaded"


def test_a_reader_arrives_as_it_was(tmp_path):
    folder = TransactionalFolder(LocalFs(), str(tmp_path / "orders-0"))
    folder.write(count=10)
    folder.checkpoint()
    options = parse_read_options({"path": folder.folder}, OptionUse.BATCH)
    reader = TopicReader(options, table_schema(include_headers=False))
    copy = cloudpickle.loads(cloudpickle.dumps(reader))
    assert type(copy) is TopicReader
    [task] = reader.partitions()
    assert [batch.to_pylist() for batch in copy.read(task)] == [batch.to_pylist() for batch in reader.read(task)]


TRACEBACK = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
    ^^^^^^^^^
"""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            PythonException(f"{TRACEBACK}ValueError: no\nwhile reading orders-0\n"),
            "ValueError: no\nwhile reading orders-0",
        ),
        (PythonException("no frames"), "no frames"),
        (PythonException("  cut off"), "  cut off"),
        (ValueError(), "ValueError"),
        (ValueError("one\ntwo"), "one\ntwo"),
    ],
)
def test_an_error_is_told_without_its_traceback(error, told):
    assert error_text(error) == told


def test_a_module_that_spark_misses_in_a_task_has_the_same_remedy():
    told = error_text(PythonException(f"{TRACEBACK}ModuleNotFoundError: No module named 'pyarrow'\n"))
    assert told.startswith(f"ModuleNotFoundError: No module named 'pyarrow'; executors need sparklog {__version__} ")


def test_an_exception_of_the_jvm_is_told_without_the_call_that_it_ended(spark):
    with pytest.raises(Py4JJavaError) as failed:
        spark._jvm.java.util.Optional.empty().get()
    assert error_text(failed.value).startswith("java.util.NoSuchElementException: No value present\n")


def test_the_collection_after_each_task_passes_over_loaded_modules(spark):
    def counts(_: object) -> tuple[int, int]:
        return gc.get_freeze_count(), len(gc.get_objects())

    [(frozen, left)] = spark.sparkContext.parallelize([None], 1).map(task_function(counts)).collect()
    assert left < frozen

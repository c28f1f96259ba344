"""Runs the blocks of a page in order, as a reader would, against a broker of the page's own.

Addresses of the page become those of the broker, ``sparklog up &`` does nothing as the broker runs already, and
``.venv`` is this checkout's. Shell blocks run in a folder of their own, Python blocks in this process, in one
namespace. Functions in them that are named ``test_…`` are called with the fixtures they ask for.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparklog.client import Admin, Producer
from sparklog.testing import RunningBroker, start_broker, start_cluster
from support.docs.markdown import ROOT, Block
from support.patience import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN = ("python", "sh", "console", "sql")
_OF_SPARK = re.compile(r"""(?<=["`])(?:[\w-]+-)?(?:table|checkpoint)(?=["`])""")
"""Folders that Spark writes to: a JVM that runs already has its own idea of where it is."""
_SHELL = """\
set -euo pipefail
sparklog() {
  if [ "$*" = up ]; then return 0; fi
  if [ "$1" = up ]; then echo "another broker than the page's: say above the block which test does this"; exit 1; fi
  command sparklog "$@"
}
"""


class PageRun:
    """One page, its broker, and what its blocks have in common."""

    def __init__(self, broker: RunningBroker, folder: Path, stack: ExitStack) -> None:
        """stack: ends what tests in the page have been given."""
        self._broker = broker
        self._folder = folder
        self._stack = stack
        self._names: dict[str, Any] = {"__name__": "documentation"}
        self._fixtures: dict[str, Callable[[], Any]] = {
            "sparklog_broker": lambda: stack.enter_context(start_broker(kafka=True)),
            "sparklog_cluster": lambda: stack.enter_context(start_cluster(3, kafka=True)),
            "tmp_path": lambda: folder,
        }
        (folder / ".venv").symlink_to(Path(sys.prefix))

    def use(self, spark: SparkSession) -> None:
        """Let blocks and their tests find a session as `spark`."""
        self._names["spark"] = spark
        self._fixtures["spark"] = lambda: spark

    def make_orders(self) -> None:
        """A topic `orders` with a few records, for pages that go on from another one."""
        with Admin(bootstrap_servers=self._broker.bootstrap) as admin:
            admin.create_topic("orders", partitions=3)
        with Producer(bootstrap_servers=self._broker.bootstrap) as producer:
            for customer, amount in (("alice", 12), ("bob", 7), ("alice", 3)):
                producer.send("orders", f'{{"amount": {amount}}}', key=customer)

    def run(self, block: Block) -> None:
        """Run a block; raises what it raises, or AssertionError with what its command printed."""
        text = self._adapted(block.text)
        match block.language:
            case "python":
                self._run_python(block, text)
                self._await_streams()
            case "sql":
                for statement in filter(None, map(str.strip, text.split(";\n"))):
                    self._names["spark"].sql(statement.rstrip(";")).collect()
            case "console":
                lines = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
                self._run_shell(block, "\n".join(lines))
            case "sh":
                self._run_shell(block, text)

    def _adapted(self, text: str) -> str:
        for address, instead in (
            ("127.0.0.1:9094", self._broker.bootstrap),
            ("127.0.0.1:9092", self._broker.kafka),
            ("/var/lib/kafka/data", str(self._broker.data_dir)),
        ):
            text = text.replace(address, instead)
        return _OF_SPARK.sub(lambda found: str(self._folder / found[0]), text)

    def _run_python(self, block: Block, text: str) -> None:
        before = set(self._names)
        exec(compile("\n" * block.line + text, str(block.page), "exec"), self._names)
        for name in [name for name in self._names if name.startswith("test_") and name not in before]:
            test = self._names[name]
            test(**{each: self._fixtures[each]() for each in inspect.signature(test).parameters})

    def _await_streams(self) -> None:
        if "spark" in self._names:
            for query in self._names["spark"].streams.active:
                query.awaitTermination(PATIENCE_S)

    def _run_shell(self, block: Block, text: str) -> None:
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SPARKLOG_BOOTSTRAP": self._broker.bootstrap,
            "PYTHONPATH": str(ROOT),
        }
        done = subprocess.run(
            ["bash", "-c", _SHELL + text],
            cwd=self._folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S * 4, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{block.name}: {done.stdout}{done.stderr}"


def needs_spark(block: Block) -> bool:
    """Whether the block needs a SparkSession."""
    return block.language == "sql" or (block.language == "python" and "spark." in block.text.replace("pyspark.", ""))

"""How tests start Java, and run Apache Kafka's tools, one after another, in one JVM."""

from __future__ import annotations

import struct
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from support import CACHE
from support.patience import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A process that lives for seconds is done sooner with the simplest compiler and collector.
JAVA = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
KAFKA_JARS = CACHE / "kafka"
# For every JVM of Spark's, in whatever process: the check of each class, too, costs more than it finds.
SPARK_OPTIONS = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote "
    "-Xlog:disable -Xlog:all=error:stderr"
)
SPARK_CLASSES = CACHE / "classes" / "spark.jsa"
"""What support.runs.class_archive has made; where it is not there, or not of these jars, all works without."""


def spark_options() -> str:
    """What SPARK_SUBMIT_OPTS is to be."""
    archive = f" -XX:SharedArchiveFile={SPARK_CLASSES}"
    return SPARK_OPTIONS + (archive if SPARK_CLASSES.exists() else "")


def end_spark(session: SparkSession) -> None:
    """Stop the session, and wait for the end of its JVM."""
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends with it
    gateway.proc.wait(PATIENCE_S)


def kafka_command(name: str, *arguments: str) -> list[str]:
    """The command that runs a class of Apache Kafka's; fails where its jars are missing."""
    assert list(KAFKA_JARS.glob("kafka-tools-*.jar")), f"no Kafka in {KAFKA_JARS}: run `make test`, which fetches it"
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return [*JAVA, "-Xmx512M", quiet, "-cp", f"{KAFKA_JARS}/*", name, *arguments]


class KafkaTools:
    """Runs Kafka's tools by the names of their classes: a JVM takes a second to start, a tool a tenth of it to run.

    The JVM starts with the first of them. KafkaTools.java says what goes back and forth.
    """

    def __init__(self, *properties: str) -> None:
        """properties: of the JVM, as -DNAME=VALUE"""
        self._properties = properties
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, name: str, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """`given` is what the tool reads from standard input."""
        process = self._process = self._process or self._start()
        assert process.stdin
        assert process.stdout
        texts = [text.encode() for text in (name, given, *arguments)]
        request = [struct.pack(">i", len(texts)), *(struct.pack(">i", len(text)) + text for text in texts)]
        alarm = threading.Timer(2 * PATIENCE_S, process.kill)  # the tool's own time-outs come first, and say more
        alarm.start()
        try:
            process.stdin.write(b"".join(request))
            process.stdin.flush()
            status = self._read_number()
            output, errors = (process.stdout.read(self._read_number()).decode() for _ in range(2))
        except (OSError, struct.error):
            self.close()
            raise AssertionError(f"the JVM of {name} has died, or the tool hangs") from None
        finally:
            alarm.cancel()
        return subprocess.CompletedProcess([name, *arguments], status, output, errors)

    def close(self) -> None:
        if self._process:
            self._process.communicate(timeout=PATIENCE_S)
            self._process = None

    def _start(self) -> subprocess.Popen[bytes]:
        program = Path(__file__).with_name("KafkaTools.java")
        java, *rest = kafka_command(str(program))
        return subprocess.Popen([java, *self._properties, *rest], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def _read_number(self) -> int:
        assert self._process
        assert self._process.stdout
        return int(struct.unpack(">i", self._process.stdout.read(4))[0])

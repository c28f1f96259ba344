"""How tests start Java."""

from __future__ import annotations

from support import CACHE

# A process that lives for seconds is done sooner with the simplest compiler and collector.
JAVA = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
KAFKA_JARS = CACHE / "kafka"


def kafka_command(name: str, *arguments: str) -> list[str]:
    """The command that runs a class of Apache Kafka's; fails where its jars are missing."""
    assert list(KAFKA_JARS.glob("kafka-tools-*.jar")), f"no Kafka in {KAFKA_JARS}: run `make test`, which fetches it"
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return [*JAVA, "-Xmx512M", quiet, "-cp", f"{KAFKA_JARS}/*", name, *arguments]

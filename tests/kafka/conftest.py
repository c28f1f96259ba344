"""Apache Kafka's own command line tools, run on what sparklog wrote."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from support.processes.java import KafkaTools

# The tool says this of every segment that does not begin at offset 0, those that Kafka wrote included.
OF_EVERY_SEGMENT = re.compile(r"^Non-consecutive offsets in .*\n  -1 is followed by \d+\n", re.MULTILINE)


@pytest.fixture(scope="session")
def kafka_tools() -> Iterator[KafkaTools]:
    with closing(KafkaTools()) as tools:
        yield tools


@pytest.fixture(scope="session")
def kafka_tool(kafka_tools: KafkaTools) -> Callable[..., str]:
    """Run one of Kafka's tools by the name of its class; returns what it printed, complaints too.

    Fails where the tool fails.
    """

    def run(name: str, *arguments: str, stdin: str = "") -> str:
        done = kafka_tools.run(name, *arguments, given=stdin)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture(scope="session")
def dump_log_segments(kafka_tool: Callable[..., str]) -> Callable[..., str]:
    """Run `kafka-dump-log.sh`; returns what it printed, complaints too."""

    def dump(*files: Path, options: tuple[str, ...] = ("--deep-iteration",)) -> str:
        names = ",".join(map(str, files))
        return OF_EVERY_SEGMENT.sub(
            "", kafka_tool("org.apache.kafka.tools.DumpLogSegments", *options, "--files", names)
        )

    return dump

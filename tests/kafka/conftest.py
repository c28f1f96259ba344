"""Apache Kafka's own command line tools, run on what sparklog wrote."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from support.processes import output
from support.processes.java import kafka_command

# The tool says this of every segment that does not begin at offset 0, those that Kafka wrote included.
OF_EVERY_SEGMENT = re.compile(r"^Non-consecutive offsets in .*\n  -1 is followed by \d+\n", re.MULTILINE)


@pytest.fixture(scope="session")
def kafka_tool() -> Callable[..., str]:
    """Run one of Kafka's tools by the name of its class; returns what it printed, complaints too.

    Fails where the tool fails.
    """

    def run(name: str, *arguments: str, stdin: str | None = None) -> str:
        done = output.run(kafka_command(name, *arguments), given=stdin, together=True)
        assert done.returncode == 0, done.stdout
        return done.stdout

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

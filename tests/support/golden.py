"""What Apache Kafka says is in the folders of `tests/data/golden`, as rows of a topic's table."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from support import GOLDEN

FOLDERS = sorted(folder.parent.name for folder in GOLDEN.glob("*/expected.jsonl"))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def expected_rows(folder: Path, name: str = "expected") -> list[tuple]:
    """All rows of the folder; with name ``expected-committed``, those that a reader of committed records sees."""
    topic, _, partition = folder.name.rpartition("-")
    return [
        (
            unpacked(record["key"]),
            unpacked(record["value"]),
            topic,
            int(partition),
            record["offset"],
            _EPOCH + timedelta(milliseconds=record["timestamp"]),
            record["timestamp_type"] - 1,
            [(key, unpacked(value)) for key, value in record["headers"]],
        )
        for record in map(json.loads, (folder / f"{name}.jsonl").read_text().splitlines())
    ]


def unpacked(text: str | None) -> bytearray | None:
    return None if text is None else bytearray(base64.b64decode(text))

"""Segments of Apache Kafka are read as Kafka reads them: the dumps beside the golden segments, line by line."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest

from sparklog.records import arrow
from sparklog.records.batch import check_batch, iterate_headers
from sparklog.records.records import Record, read_records
from support.record_values import GOLDEN, LOGS

FOLDERS = sorted(path.parent for path in GOLDEN.glob("*/expected.jsonl"))
DUMPS = [path for path in LOGS if path.with_suffix(".log.dump").exists()]
# For these segments, Kafka prints the decoded records, not their bytes.
DECIPHERED = ("__consumer_offsets-0", "__transaction_state-0")


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name}" if path.suffix else path.name


def encoded(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_golden_folder_decodes_to_what_kafka_consumed(folder: Path) -> None:
    rows = [row for path in sorted(folder.glob("*.log")) for row in arrow.decode(path.read_bytes()).to_pylist()]
    decoded = [
        {
            "offset": row["offset"],
            "timestamp_type": row["timestampType"] + 1,  # expected.jsonl counts from 1
            "timestamp": round(row["timestamp"].timestamp() * 1000),
            "key": encoded(row["key"]),
            "value": encoded(row["value"]),
            "headers": [[header["key"], encoded(header["value"])] for header in row["headers"]],
        }
        for row in rows
    ]
    assert decoded == [json.loads(line) for line in (folder / "expected.jsonl").read_text().splitlines()]


def dump_lines(data: bytes) -> list[str]:
    """The segment as DumpLogSegments prints it with --deep-iteration, keys and values left out."""
    lines = []
    for position, header in iterate_headers(data):
        check_batch(data, position)
        kind = ("CreateTime", "LogAppendTime")[header.timestamp_type]
        last_sequence = -1 if header.base_sequence < 0 else header.base_sequence + header.last_offset_delta
        horizon = header.delete_horizon_ms
        lines.append(
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
            f"baseSequence: {header.base_sequence} lastSequence: {last_sequence} producerId: {header.producer_id} "
            f"producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.leader_epoch} "
            f"isTransactional: {str(header.is_transactional).lower()} isControl: {str(header.is_control).lower()} "
            f"deleteHorizonMs: OptionalLong{'.empty' if horizon is None else f'[{horizon}]'} position: {position} "
            f"{kind}: {header.max_timestamp} size: {header.size} magic: {header.magic} "
            f"compresscodec: {header.codec.name.lower()} crc: {header.crc} isvalid: true"
        )
        lines += [
            f"| offset: {record.offset} {kind}: {record.timestamp_ms} keySize: {size_of(record.key)} "
            f"valueSize: {size_of(record.value)} sequence: {record.sequence} "
            f"headerKeys: [{','.join(key for key, _ in record.headers)}]"
            for record in read_records(data, position)
        ]
    return lines


def size_of(value: bytes | None) -> int:
    return -1 if value is None else len(value)


def content_as_dumped(record: Record, *, is_control: bool) -> str:
    if is_control:
        marker = ("ABORT", "COMMIT")[int.from_bytes(record.key[2:4], "big")]
        return f" endTxnMarker: {marker} coordinatorEpoch: {int.from_bytes(record.value[2:6], 'big')}"
    key = "" if record.key is None else f" key: {record.key.decode()}"
    return key + ("" if record.value is None else f" payload: {record.value.decode()}")


def texts_in(value: object) -> list[str]:
    """Every text in a JSON value."""
    if isinstance(value, dict):
        return [text for child in value.values() for text in texts_in(child)]
    if isinstance(value, list):
        return [text for child in value for text in texts_in(child)]
    return [value] if isinstance(value, str) else []


def check_deciphered(dumped: str, record: Record) -> None:
    """Check a record that Kafka prints decoded: its type, its version and every text in it are in the bytes."""
    key, _, payload = dumped.removeprefix(" key: ").partition(" payload: ")
    for text, content, number in ((key, record.key, "type"), (payload, record.value, "version")):
        if text in ("", "null", "<DELETE>"):
            assert content is None
            continue
        meaning = json.loads(text)
        assert int.from_bytes(content[:2], "big") == int(meaning[number])
        for part in texts_in(meaning["data"]):
            assert part.encode() in content or base64.urlsafe_b64decode(part + "==") in content  # a topic id


@pytest.mark.parametrize("path", DUMPS, ids=name_of)
def test_golden_segment_reads_as_kafka_dumps_it(path: Path) -> None:
    data = path.read_bytes()
    dumped = [re.split(r"(?<=\])(?= key: | payload: | endTxnMarker: |$)", line, maxsplit=1) for line in dump_of(path)]
    assert [line[0] for line in dumped] == dump_lines(data)
    contents = [line[1] for line in dumped if line[0].startswith("| ")]
    records = [
        (record, header.is_control)
        for position, header in iterate_headers(data)
        for record in read_records(data, position)
    ]
    for content, (record, is_control) in zip(contents, records, strict=True):
        if path.parent.name in DECIPHERED and not is_control:
            check_deciphered(content, record)
        else:
            assert content == content_as_dumped(record, is_control=is_control)


def dump_of(path: Path) -> list[str]:
    return path.with_suffix(".log.dump").read_text().splitlines()[2:]


@pytest.mark.parametrize("path", LOGS, ids=name_of)
def test_compiled_and_plain_readers_agree(path: Path) -> None:
    data = path.read_bytes()
    plain = [
        record
        for position, header in iterate_headers(data)
        if not header.is_control
        for record in read_records(data, position)
    ]
    columns = arrow.decode(data).to_pydict()
    assert columns["offset"] == [record.offset for record in plain]
    assert columns["key"] == [record.key for record in plain]
    assert columns["value"] == [record.value for record in plain]
    assert columns["headers"] == [[{"key": k, "value": v} for k, v in record.headers] for record in plain]

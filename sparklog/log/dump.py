"""Dump of segment, index and snapshot files, in the output format of Apache Kafka's DumpLogSegments.

    00000000000000000000.log        a line for each batch; with `deep_iteration` one for each record, indented by "| "
    00000000000000000000.index      a line for each entry, checked against the log beside it
    00000000000000000000.timeindex  the same
    00000000000000000000.txnindex   a line for each aborted transaction
    00000000000000000000.snapshot   a line for each producer

Lines are produced while the file is read: at most one batch is in memory. Inconsistencies become findings, also in
Kafka's words; the dump continues as far as possible.
"""

from __future__ import annotations

import base64
import json
import posixpath
import struct
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct, field

from sparklog.base.errors import ConfigError, CorruptRecord
from sparklog.base.fs import ReadFile, ReadFs
from sparklog.log.files import LOG, OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TXN_INDEX, parse_name
from sparklog.log.producers.snapshots import NONE, CorruptSnapshot, read_snapshot
from sparklog.log.segment.indexes import OffsetIndex, TimeIndex
from sparklog.log.segment.scan import BatchPlace, walk
from sparklog.log.segment.transaction_index import ENTRY_SIZE, VERSION, read_entries
from sparklog.offsets_topic.decoders import Decoded, decode_text
from sparklog.records.batch import MAGIC, NO_TIMESTAMP, BatchHeader, TimestampType, compute_crc, read_header
from sparklog.records.legacy import LegacyMessage, iterate_messages, messages_of
from sparklog.records.markers import read_marker
from sparklog.records.records import Record, read_records

_TIMESTAMP_TYPES = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}
_CONTROL_KEY = struct.Struct(">hh")  # version, type


class DumpOptions(Struct, frozen=True, kw_only=True):
    """Options, named as in DumpLogSegments."""

    deep_iteration: bool = False
    print_data_log: bool = False
    """Print keys and values too; implies `deep_iteration`."""
    decode: Callable[[Record], Decoded] = decode_text
    """The function that turns keys and values into text (`offsets_topic/decoders.py`)."""
    verify_index_only: bool = False
    """Check index entries and print none."""
    index_sanity_check: bool = False
    """Do only the check by which a broker decides to trust an index."""


class DumpFindings(Struct):
    """The inconsistencies found, under Kafka's headings."""

    _by_title: dict[str, list[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._by_title)

    def add(self, title: str, text: str) -> None:
        """Add a finding under a heading; headings appear in the order of their first findings."""
        self._by_title.setdefault(title, []).append(text)

    def lines(self) -> Iterator[str]:
        """Yield each heading, and under it its findings, indented."""
        for title, texts in self._by_title.items():
            yield title
            yield from (f"  {text}" for text in texts)


def dump_file(fs: ReadFs, path: str, options: DumpOptions, findings: DumpFindings) -> Iterator[str]:
    """Yield the lines that describe one file; add inconsistencies to `findings`.

    Raises ConfigError for a file of another kind, OSError if the file, or the log beside an index, cannot be read.
    """
    name = parse_name(posixpath.basename(path))
    yield f"Dumping {path}"
    if name and name.suffix == LOG:
        yield f"Log starting offset: {name.base_offset}"
        yield from _dump_log(fs, path, options, findings)
    elif name and name.suffix == OFFSET_INDEX:
        yield from _dump_offset_index(fs, path, name.base_offset, options, findings)
    elif name and name.suffix == TIME_INDEX:
        yield from _dump_time_index(fs, path, name.base_offset, options, findings)
    elif name and name.suffix == TXN_INDEX:
        yield from _dump_aborted_transactions(fs, path)
    elif name and name.suffix == SNAPSHOT:
        yield from _dump_snapshot(fs, path, findings)
    else:
        raise ConfigError(f"{path}: not a .log, .index, .timeindex, .txnindex or .snapshot file of a partition")


def dump_json(fs: ReadFs, path: str) -> Iterator[str]:
    """Yield one JSON object for each record of a `.log` file, except transaction markers.

    {"offset", "timestamp_type", "timestamp", "key", "value", "headers"}: bytes in base64, headers as [key, value]
    pairs, timestamp types numbered as in librdkafka: 0 none, 1 CreateTime, 2 LogAppendTime.

    Raises ConfigError for a file of another kind, CorruptRecord at the first batch that cannot be read, OSError.
    """
    name = parse_name(posixpath.basename(path))
    if not name or name.suffix != LOG:
        raise ConfigError(f"{path}: records are in .log files")
    file = fs.open_read(path)
    try:
        for place in walk(file, 0, file.size):
            data = file.read_at(place.position, place.size)
            if place.magic == MAGIC and read_header(data).is_control:
                continue
            for record in _records(data, place):
                yield _as_json(record, place.magic)
    finally:
        file.close()


def _dump_log(fs: ReadFs, path: str, options: DumpOptions, findings: DumpFindings) -> Iterator[str]:
    file = fs.open_read(path)
    end = 0
    last_offset = None
    try:
        for place in walk(file, 0, file.size):
            end = place.end
            data = file.read_at(place.position, place.size)
            yield _batch_line(data, place)
            if not (options.deep_iteration or options.print_data_log):
                continue
            for offset, line in _record_lines(data, place, options, findings, path):
                if last_offset is not None and offset != last_offset + 1:
                    findings.add(f"Non-consecutive offsets in {path}", f"{last_offset} is followed by {offset}")
                last_offset = offset
                yield line
    except CorruptRecord as error:
        findings.add(f"Found what is no batch in {path}", str(error))
    finally:
        file.close()
    if file.size > end:
        yield f"Found {file.size - end} invalid bytes at the end of {posixpath.basename(path)}"


def _batch_line(data: bytes, place: BatchPlace) -> str:
    if place.magic != MAGIC:
        [message] = iterate_messages(data, check_crc=False)
        valid = _is_valid(message, data)
        return f"offset: {place.last_offset}" + _place_text(
            place, _legacy_type(message), message.timestamp_ms, message.codec.name, message.crc, valid
        )
    header = read_header(data)
    horizon = header.delete_horizon_ms
    last_sequence = NONE if header.base_sequence < 0 else header.base_sequence + header.last_offset_delta & 0x7FFFFFFF
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {last_sequence} "
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.leader_epoch} isTransactional: {_java_boolean(header.is_transactional)} "
        f"isControl: {_java_boolean(header.is_control)} deleteHorizonMs: {_java_optional(horizon)}"
    ) + _place_text(
        place,
        _TIMESTAMP_TYPES[header.timestamp_type],
        header.max_timestamp,
        header.codec.name,
        header.crc,
        compute_crc(data, 0, len(data)) == header.crc,
    )


def _place_text(place: BatchPlace, timestamp_type: str, timestamp_ms: int, codec: str, crc: int, valid: bool) -> str:
    return (
        f" position: {place.position} {timestamp_type}: {timestamp_ms} size: {place.size} magic: {place.magic} "
        f"compresscodec: {codec.lower()} crc: {crc} isvalid: {_java_boolean(valid)}"
    )


def _record_lines(
    data: bytes, place: BatchPlace, options: DumpOptions, findings: DumpFindings, path: str
) -> Iterator[tuple[int, str]]:
    """Yield the offset and the line of each record of a batch."""
    try:
        if place.magic == MAGIC:
            header = read_header(data)
            for record in read_records(data):
                yield record.offset, _v2_line(record, header, options)
        else:
            for message, record in _messages(data):
                text = f"{_record_text(record, _legacy_type(message))} isValid: true crc: {message.crc}"
                yield record.offset, text + _contents(record, options)
    except CorruptRecord as error:
        findings.add(f"Found records that cannot be read in {path}", str(error))


def _v2_line(record: Record, header: BatchHeader, options: DumpOptions) -> str:
    keys = ",".join(key for key, _ in record.headers)
    text = _record_text(record, _TIMESTAMP_TYPES[record.timestamp_type])
    text += f" sequence: {record.sequence} headerKeys: [{keys}]"
    if header.is_control:
        return text + _control_text(record)
    return text + _contents(record, options)


def _record_text(record: Record, timestamp_type: str) -> str:
    return (
        f"| offset: {record.offset} {timestamp_type}: {record.timestamp_ms} "
        f"keySize: {_size(record.key)} valueSize: {_size(record.value)}"
    )


def _control_text(record: Record) -> str:
    if marker := read_marker(record):
        return (
            f" endTxnMarker: {'COMMIT' if marker.is_commit else 'ABORT'} coordinatorEpoch: {marker.coordinator_epoch}"
        )
    key = record.key or b""
    number = _CONTROL_KEY.unpack_from(key)[1] if len(key) >= _CONTROL_KEY.size else -1
    return f" controlType: UNKNOWN({number})"


def _contents(record: Record, options: DumpOptions) -> str:
    if not options.print_data_log:
        return ""
    key, value = options.decode(record)
    return ("" if key is None else f" key: {key}") + ("" if value is None else f" payload: {value}")


def _dump_offset_index(
    fs: ReadFs, path: str, base_offset: int, options: DumpOptions, findings: DumpFindings
) -> Iterator[str]:
    content = _content(fs, path)
    if not content:
        yield f"{path} is empty."
        return
    index = OffsetIndex(base_offset, content)
    if options.index_sanity_check:
        if len(content) % index.LAYOUT.size or (len(index) and index[len(index) - 1][0] <= base_offset):
            findings.add(f"Sanity check failed for {path}", f"{len(content)} bytes, {len(index)} entries")
        else:
            yield f"{path} passed sanity check."
        return
    log = fs.open_read(_log_beside(path))
    try:
        for offset, position in (index[number] for number in range(len(index))):
            found = _first_batch(log, position)
            if found is None or found.last_offset != offset:
                shown = NONE if found is None else found.last_offset
                findings.add(f"Mismatches in :{path}", f"Index offset: {offset}, log offset: {shown}")
            if not options.verify_index_only:
                yield f"offset: {offset} position: {position}"
    finally:
        log.close()


def _dump_time_index(
    fs: ReadFs, path: str, base_offset: int, options: DumpOptions, findings: DumpFindings
) -> Iterator[str]:
    content = _content(fs, path)
    index = TimeIndex(base_offset, content)
    if options.index_sanity_check:
        if len(content) % index.LAYOUT.size or (len(index) and index.last.offset < base_offset):
            findings.add(f"Sanity check failed for {path}", f"{len(content)} bytes, {len(index)} entries")
        else:
            yield f"{path} passed sanity check."
        return
    log = fs.open_read(_log_beside(path))
    try:
        walked = walk(log, 0, log.size)
        place = next(walked, None)
        previous = NO_TIMESTAMP
        for timestamp, offset in (index[number] for number in range(len(index))):
            while place is not None and place.last_offset < offset:
                place = next(walked, None)
            _check_time_entry(log, place, timestamp, offset, previous, path, findings)
            if not options.verify_index_only:
                yield f"timestamp: {timestamp} offset: {offset}"
            previous = timestamp
    finally:
        log.close()


def _check_time_entry(
    log: ReadFile,
    place: BatchPlace | None,
    timestamp: int,
    offset: int,
    previous: int,
    path: str,
    findings: DumpFindings,
) -> None:
    """Check that the offset ends a batch, and that the timestamp is the batch's greatest and above the previous one."""
    if place is None or place.last_offset != offset:
        shown = NONE if place is None else place.last_offset
        text = f"Indexed offset: {offset}, found log offset: {shown}"
        findings.add("The following indexed offsets are not found in the log.", text)
        return
    greatest = _greatest_timestamp(log, place)
    if greatest != timestamp:
        text = f"Index timestamp: {timestamp}, log timestamp: {greatest}"
        findings.add(f"Found timestamp mismatch in :{path}", text)
    if previous >= timestamp:
        text = f"Index timestamp: {timestamp}, Previously indexed timestamp: {previous}"
        findings.add(f"Found out of order timestamp in :{path}", text)


def _greatest_timestamp(log: ReadFile, place: BatchPlace) -> int:
    """Return the greatest timestamp of the batch's records; the header's if the records cannot be read."""
    data = log.read_at(place.position, place.size)
    try:
        return max((record.timestamp_ms for record in _records(data, place)), default=place.max_timestamp_ms)
    except CorruptRecord:
        return place.max_timestamp_ms


def _dump_aborted_transactions(fs: ReadFs, path: str) -> Iterator[str]:
    content = _content(fs, path)
    whole = len(content) // ENTRY_SIZE * ENTRY_SIZE
    for entry in read_entries(content[:whole]):
        yield (
            f"version: {VERSION} producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
            f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
        )


def _dump_snapshot(fs: ReadFs, path: str, findings: DumpFindings) -> Iterator[str]:
    try:
        entries = read_snapshot(_content(fs, path))
    except CorruptSnapshot as error:
        findings.add(f"Found a snapshot that cannot be read in {path}", str(error))
        return
    for entry in entries:
        transaction = None if entry.transaction_first_offset < 0 else entry.transaction_first_offset
        text = (
            f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
            f"coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: {_java_optional(transaction)} "
            f"lastTimestamp: {entry.timestamp_ms} "
        )
        if entry.last_offset >= 0:
            text += (
                f"firstSequence: {entry.first_sequence} lastSequence: {entry.last_sequence} "
                f"lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta} timestamp: {entry.timestamp_ms}"
            )
        yield text


def _first_batch(log: ReadFile, position: int) -> BatchPlace | None:
    try:
        return next(walk(log, position, log.size), None)
    except CorruptRecord:
        return None


def _records(data: bytes, place: BatchPlace) -> Iterable[Record]:
    """Return the records of a batch of any format. Raises CorruptRecord."""
    return read_records(data) if place.magic == MAGIC else (record for _, record in _messages(data))


def _messages(data: bytes) -> Iterator[tuple[LegacyMessage, Record]]:
    for message in iterate_messages(data):
        yield from messages_of(message)


def _is_valid(message: LegacyMessage, data: bytes) -> bool:
    try:
        return next(iterate_messages(data)) == message
    except CorruptRecord:
        return False


def _as_json(record: Record, magic: int) -> str:
    return json.dumps(
        {
            "offset": record.offset,
            "timestamp_type": 0 if magic == 0 else record.timestamp_type + 1,
            "timestamp": record.timestamp_ms,
            "key": _base64(record.key),
            "value": _base64(record.value),
            "headers": [[key, _base64(value)] for key, value in record.headers],
        }
    )


def _log_beside(path: str) -> str:
    return path[: path.rindex(".")] + LOG


def _content(fs: ReadFs, path: str) -> bytes:
    file = fs.open_read(path)
    try:
        return file.read_at(0, file.size)
    finally:
        file.close()


def _legacy_type(message: LegacyMessage) -> str:
    return _TIMESTAMP_TYPES[message.timestamp_type] if message.magic else "NoTimestampType"


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _size(value: bytes | None) -> int:
    return NONE if value is None else len(value)


def _java_boolean(flag: bool) -> str:
    return "true" if flag else "false"


def _java_optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"

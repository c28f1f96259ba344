"""Records of `__transaction_state`: Apache Kafka's are read, and written again byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.base.errors import CorruptRecord, InvalidRequest
from sparklog.base.ids import TopicPartition
from sparklog.base.schemas import write_key, write_value
from sparklog.records.batch import read_header
from sparklog.records.records import Record, iterate_records
from sparklog.transaction_topic.decoder import decode_transactions
from sparklog.transaction_topic.records import (
    TransactionKey,
    TransactionRecord,
    TransactionValue,
    decode,
    encode,
)
from sparklog.transaction_topic.schemas import KAFKA_TRANSACTION_TOPIC, TRANSACTION_LOG

LOG = "__transaction_state-0/00000000000000000000.log"
KEY = TransactionKey(transactional_id="tx-a")
VALUE = TransactionValue(producer_id=6, producer_epoch=3, timeout_ms=60_000, status=0, last_update_ms=1)
int16, int32, int64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))
partitions = st.dictionaries(st.text(max_size=9), st.lists(st.integers(0, 9), min_size=1, max_size=3), max_size=3).map(
    lambda topics: tuple(TopicPartition(topic, number) for topic, numbers in topics.items() for number in numbers)
)
values = st.builds(
    TransactionValue,
    producer_id=int64,
    previous_producer_id=int64,
    next_producer_id=int64,
    producer_epoch=int16,
    next_producer_epoch=int16,
    timeout_ms=int32,
    status=st.integers(0, 7),
    partitions=st.none() | partitions,
    last_update_ms=int64,
    start_ms=int64,
    client_transaction_version=int16,
    last_producer_epoch=int16,
)
records = st.builds(
    TransactionRecord, st.builds(TransactionKey, transactional_id=st.text(max_size=20)), st.none() | values
)


@pytest.mark.slow
@given(records)
def test_every_record_is_read_as_it_was_written(record: TransactionRecord) -> None:
    assert decode(*encode(record)) == record


def of_kafka(data: bytes) -> Iterator[Record]:
    position = 0
    while position < len(data):
        yield from iterate_records(data, position)
        position += read_header(data, position).size


def test_records_that_kafka_wrote_are_written_again_byte_for_byte(golden: Path) -> None:
    found = list(of_kafka((golden / LOG).read_bytes()))

    decoded = [decode(record.key, record.value) for record in found]
    states = [record.value.status for record in decoded if record and record.value]
    again = [encode(record) for record in decoded if record]

    assert states == [0, 1, 2, 4, 1, 3, 5, 1, 2, 4, 1, 2, 4, 1, 1, 2, 4]
    assert decoded[14] == TransactionRecord(
        KEY,
        TransactionValue(
            producer_id=6,
            previous_producer_id=6,
            producer_epoch=0,
            timeout_ms=600_000,
            status=1,
            partitions=(TopicPartition("transactional", 0), TopicPartition("__consumer_offsets", 0)),
            last_update_ms=1795227430647,
            start_ms=1795227430638,
        ),
    )
    assert again == [(record.key, record.value) for record in found]


@given(values, st.integers(0, 60))
def test_a_value_that_is_cut_off_is_corrupt(value: TransactionValue, cut: int) -> None:
    key, data = encode(TransactionRecord(KEY, value))
    assert data is not None

    with pytest.raises(CorruptRecord):
        decode(key, data[: min(cut, len(data) - 1)])


def test_damaged_records_are_corrupt() -> None:
    key, data = encode(TransactionRecord(KEY, VALUE))
    assert data is not None
    status_at = 2 + 8 + 2 + 4

    for wrong_key, wrong in [
        (None, data),
        (key[:-1], data),
        (b"\0", data),
        (key, data[:status_at] + b"\x08" + data[status_at + 1 :]),
        (key, data[:status_at] + b"\xff" + data[status_at + 1 :]),
        (key, b"\xff\xff" + data[2:]),
    ]:
        with pytest.raises(CorruptRecord):
            decode(wrong_key, wrong)


def test_types_and_versions_of_the_future_are_skipped() -> None:
    key, data = encode(TransactionRecord(KEY, VALUE))
    assert data is not None

    assert decode(b"\0\x01" + key[2:], data) is None
    assert decode(key, b"\0\x02" + data[2:]) is None


def test_unknown_tagged_fields_are_skipped() -> None:
    key, data = encode(TransactionRecord(KEY, VALUE))
    assert data is not None
    assert data.endswith(b"\0"), "there are no tagged fields"

    assert decode(key, data[:-1] + b"\x01\x63\x02ab") == TransactionRecord(KEY, VALUE)


def test_values_of_version_0_are_read() -> None:
    fields = {
        "producerId": 6, "producerEpoch": 3, "transactionTimeoutMs": 60_000, "transactionStatus": 1,
        "transactionPartitions": [{"topic": "t", "partitionIds": [0, 2]}], "transactionLastUpdateTimestampMs": 1,
        "transactionStartTimestampMs": 1,
    }  # fmt: skip
    message = KAFKA_TRANSACTION_TOPIC[TRANSACTION_LOG][1]

    found = decode(
        write_key(TRANSACTION_LOG, {"transactionalId": "tx-a"}, KAFKA_TRANSACTION_TOPIC),
        write_value(0, fields, message),
    )

    assert found is not None
    assert found.value is not None
    assert found.value.partitions == (TopicPartition("t", 0), TopicPartition("t", 2))
    assert (found.value.producer_id, found.value.client_transaction_version) == (6, 0)


def test_fields_of_our_own_are_not_in_the_text_that_kafka_s_tool_would_print() -> None:
    plain = TransactionRecord(KEY, VALUE)
    with_ours = TransactionRecord(KEY, TransactionValue(**{**_fields(VALUE), "last_producer_epoch": 2}))
    texts = []
    for record in (plain, with_ours):
        key, value = encode(record)
        texts.append(decode_transactions(Record(offset=0, timestamp_ms=0, key=key, value=value)))

    assert encode(plain) != encode(with_ours)
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_an_id_too_long_for_the_record_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        encode(TransactionRecord(TransactionKey(transactional_id="x" * 32_768)))


def _fields(value: TransactionValue) -> dict[str, object]:
    return {name: getattr(value, name) for name in TransactionValue.__dataclass_fields__}

"""Options are read once, strictly, with the names and meanings of Spark's Kafka source."""

from __future__ import annotations

import json
import pickle

import pytest

from sparklog.base.errors import ConfigError
from sparklog.base.ids import TopicPartition
from sparklog.spark.source.option_parsing import parse_read_options, parse_write_options
from sparklog.spark.source.option_table import OPTIONS, OptionUse
from sparklog.spark.source.options import (
    AllTopics,
    ApplicationTransaction,
    Assign,
    Edge,
    NoMatchStrategy,
    ReadMode,
    SpecificOffsets,
    SpecificTimestamps,
    Subscribe,
    SubscribePattern,
)

BROKER = {"kafka.bootstrap.servers": "127.0.0.1:9094"}


def refusal(options, use=OptionUse.BATCH):
    with pytest.raises(ConfigError) as refused:
        parse_read_options(options, use)
    return str(refused.value)


def test_a_batch_reads_everything_and_a_stream_what_comes():
    batch = parse_read_options({**BROKER, "subscribe": "orders"}, OptionUse.BATCH)
    assert (batch.starting, batch.ending) == (Edge.EARLIEST, Edge.LATEST)
    assert (batch.read_mode, batch.fail_on_data_loss, batch.include_headers) == (ReadMode.AUTO, True, False)
    assert parse_read_options({**BROKER, "subscribe": "orders"}, OptionUse.STREAM).starting is Edge.LATEST


@pytest.mark.parametrize(
    ("option", "raw", "selection"),
    [
        ("subscribe", "a, b,a", Subscribe(("a", "b"))),
        ("subscribePattern", "a.*", SubscribePattern("a.*")),
        ("assign", '{"a": [0, 2]}', Assign(frozenset({TopicPartition("a", 0), TopicPartition("a", 2)}))),
    ],
)
def test_topics_are_chosen_as_in_the_kafka_source(option, raw, selection):
    assert parse_read_options({**BROKER, option: raw}, OptionUse.BATCH).selection == selection


def test_a_path_reads_all_topics_or_those_that_are_named():
    assert parse_read_options({"path": "/logs"}, OptionUse.BATCH).selection == AllTopics()
    assert parse_read_options({"path": "/logs", "subscribe": "a"}, OptionUse.BATCH).selection == Subscribe(("a",))
    assert parse_read_options({"path": "/logs"}, OptionUse.BATCH).broker is None


def test_a_pattern_matches_whole_names():
    assert SubscribePattern("a+").matches("aaa")
    assert not SubscribePattern("a+").matches("aaab")


def test_offsets_for_each_partition_come_as_json():
    raw = json.dumps({"a": {"0": 23, "1": -2}})
    options = parse_read_options({**BROKER, "subscribe": "a", "startingOffsets": raw}, OptionUse.BATCH)
    assert options.starting == SpecificOffsets({TopicPartition("a", 0): 23, TopicPartition("a", 1): -2})


def test_a_timestamp_goes_before_timestamps_and_those_before_offsets():
    given = {**BROKER, "subscribe": "a", "startingOffsets": "earliest"}
    by_partition = {**given, "startingOffsetsByTimestamp": '{"a": {"0": 5}}', "endingOffsetsByTimestamp": '{"a": {}}'}
    options = parse_read_options(by_partition, OptionUse.BATCH)
    assert options.starting == SpecificTimestamps({TopicPartition("a", 0): 5})
    assert options.ending == SpecificTimestamps({}, NoMatchStrategy.LATEST)
    everywhere = {**by_partition, "startingTimestamp": "7", "startingOffsetsByTimestampStrategy": "latest"}
    assert parse_read_options(everywhere, OptionUse.BATCH).starting == SpecificTimestamps(7, NoMatchStrategy.LATEST)


def test_names_are_compared_without_regard_to_case():
    options = parse_read_options(
        {"BOOTSTRAP.servers": "h:1", "SUBSCRIBE": "a", "FailOnDataLoss": "FALSE"}, OptionUse.BATCH
    )
    assert not options.fail_on_data_loss
    assert options.broker.bootstrap_servers == "h:1"


def test_an_unknown_option_is_refused_with_the_nearest_and_all_that_are_allowed():
    message = refusal({**BROKER, "subscribe": "a", "startingOffset": "earliest"})
    assert "unknown option startingOffset; did you mean startingOffsets?" in message
    assert "maxRecordsPerPartition" in message
    assert "maxOffsetsPerTrigger" not in message


@pytest.mark.parametrize(
    ("options", "use", "reason"),
    [
        ({**BROKER, "subscribe": "a", "maxOffsetsPerTrigger": "5"}, OptionUse.BATCH, "no meaning for a batch read"),
        ({**BROKER, "subscribe": "a", "endingOffsets": "latest"}, OptionUse.STREAM, "no meaning for a streaming read"),
        ({**BROKER, "subscribe": "a", "assign": '{"a": [0]}'}, OptionUse.BATCH, "not subscribe and assign"),
        (BROKER, OptionUse.BATCH, "exactly one of subscribe, subscribePattern, assign"),
        ({"subscribe": "a"}, OptionUse.BATCH, "kafka.bootstrap.servers is missing"),
        ({**BROKER, "bootstrap.servers": "h:1", "subscribe": "a"}, OptionUse.BATCH, "exactly one"),
        ({**BROKER, "path": "/logs"}, OptionUse.BATCH, "contradict each other"),
        ({"path": "/logs", "kafka.security.protocol": "SSL"}, OptionUse.BATCH, "contradict each other"),
        ({**BROKER, "subscribe": "a", "kafka.security.protocol": "KERBEROS"}, OptionUse.BATCH, "PLAINTEXT or SSL"),
        ({"path": "/logs", "readMode": "fetch"}, OptionUse.BATCH, "contradict each other"),
        ({**BROKER, "subscribe": "a", "startingOffsets": "latest"}, OptionUse.BATCH, "cannot be latest"),
        ({**BROKER, "subscribe": "a", "startingOffsets": '{"a": {"0": -1}}'}, OptionUse.BATCH, "cannot be latest"),
        ({**BROKER, "subscribe": "a", "endingOffsets": "earliest"}, OptionUse.BATCH, "cannot be earliest"),
        ({**BROKER, "subscribe": "a b"}, OptionUse.BATCH, "only ASCII letters"),
        (
            {**BROKER, "subscribePattern": "("},
            OptionUse.BATCH,
            "no regular expression: missing ), unterminated subpattern",
        ),
        ({**BROKER, "assign": '{"a": ["0"]}'}, OptionUse.BATCH, "JSON such as"),
        ({**BROKER, "assign": "[1]"}, OptionUse.BATCH, "JSON such as"),
        ({**BROKER, "subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'}, OptionUse.BATCH, "-2: earliest"),
        ({**BROKER, "subscribe": "a", "startingOffsets": "oldest"}, OptionUse.BATCH, "-2: earliest"),
        ({**BROKER, "subscribe": "a", "minPartitions": "0"}, OptionUse.BATCH, "a whole number from 1"),
        ({**BROKER, "subscribe": "a", "failOnDataLoss": "yes"}, OptionUse.BATCH, "true or false"),
        ({**BROKER, "subscribe": "a", "readMode": "magic"}, OptionUse.BATCH, "segments, fetch, auto or history"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(options, use, reason):
    assert reason in refusal(options, use)


def test_a_write_names_its_topic_and_the_producers_settings():
    options = parse_write_options(
        {**BROKER, "topic": "a", "kafka.acks": "1", "kafka.linger.ms": "20", "checkpointLocation": "/c"}
        | {"kafka.enable.idempotence": "false"}
    )
    assert options.topic == "a"
    assert options.producer == {
        "bootstrap_servers": "127.0.0.1:9094",
        "acks": 1,
        "linger_ms": 20,
        "enable_idempotence": False,
    }
    with pytest.raises(ConfigError, match="subscribe has no meaning for a write"):
        parse_write_options({**BROKER, "subscribe": "a"})


def test_writes_are_exactly_once_unless_options_say_or_rule_out_something_else():
    def guarantee(**options: str) -> str:
        return parse_write_options(
            {**BROKER, **{name.replace("_", "."): text for name, text in options.items()}}
        ).guarantee

    assert guarantee() == guarantee(deliveryGuarantee="Exactly_Once", kafka_acks="all") == "exactly_once"
    for options in ({"deliveryGuarantee": "at_least_once"}, {"kafka_acks": "1"}, {"kafka_enable_idempotence": "false"}):
        assert guarantee(**options) == "at_least_once"
        with pytest.raises(ConfigError, match="sparkSinkId has a meaning only with deliveryGuarantee = exactly_once"):
            guarantee(**options, sparkSinkId="a")
    with pytest.raises(ConfigError, match=r"exactly_once needs kafka\.acks = all"):
        guarantee(deliveryGuarantee="exactly_once", kafka_acks="1")
    for wrong in ({"deliveryGuarantee": "twice"}, {"sparkSinkId": "a b"}, {"kafka_transaction_timeout_ms": "999"}):
        with pytest.raises(ConfigError):
            guarantee(**wrong)


def test_an_application_numbers_its_writes():
    transaction = {"txnAppId": "nightly", "txnVersion": "7"}
    assert parse_write_options({**BROKER, **transaction}).transaction == ApplicationTransaction("nightly", 7)
    for name, text in transaction.items():
        with pytest.raises(ConfigError, match="txnAppId and txnVersion belong together"):
            parse_write_options({**BROKER, name: text})
    with pytest.raises(ConfigError, match="txnAppId has a meaning only with deliveryGuarantee = exactly_once"):
        parse_write_options({**BROKER, **transaction, "deliveryGuarantee": "at_least_once"})
    for wrong in ("-1", "1.5", str(1 << 63)):
        with pytest.raises(ConfigError, match="a whole number from 0"):
            parse_write_options({**BROKER, **transaction, "txnVersion": wrong})


def test_the_client_of_sinks_has_the_connection_of_the_producer():
    options = parse_write_options({**BROKER, "kafka.request.timeout.ms": "5000", "kafka.linger.ms": "3"})
    assert options.connection == {"bootstrap_servers": "127.0.0.1:9094", "request_timeout_ms": 5000}


def test_tls_is_for_reads_and_writes_alike():
    tls = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/ca.pem"}
    expected = {"security_protocol": "SSL", "ssl_truststore_location": "/ca.pem"}

    assert parse_read_options({**BROKER, **tls, "subscribe": "a"}, OptionUse.STREAM).broker.security == expected
    assert parse_write_options({**BROKER, **tls}).producer == {"bootstrap_servers": "127.0.0.1:9094", **expected}


def test_every_option_is_found_by_its_name_in_lower_case():
    assert all(name == option.name.lower() and option.uses for name, option in OPTIONS.items())


def test_options_travel_to_tasks():
    options = parse_read_options({**BROKER, "assign": '{"a": [0]}'}, OptionUse.BATCH)
    assert pickle.loads(pickle.dumps(options)) == options

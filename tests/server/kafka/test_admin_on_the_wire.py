"""Topics and configurations over Kafka's protocol: every version of every API, and its errors."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparklog.base.config import CHANGEABLE
from sparklog.base.ids import TopicPartition
from sparklog.server.kafka.messages import versions_of
from sparklog.testing import RunningBroker
from support.kafka.connection import Wire
from support.patience import PATIENCE_MS, wait_until

CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, CREATE_PARTITIONS = 19, 20, 21, 37
DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 33, 44
DESCRIBE_LOG_DIRS, LIST_CONFIG_RESOURCES = 35, 74
DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, ELECT_LEADERS, LIST_PARTITION_REASSIGNMENTS = 29, 30, 31, 43, 46
ALTER_PARTITION_REASSIGNMENTS = 45
TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

NewName = Callable[[], str]


def every_version(key: int) -> pytest.MarkDecorator:
    first, last = versions_of(key)
    return pytest.mark.parametrize("version", range(first, last + 1))


def topic_fields(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []} | fields


def create(wire: Wire, *topics: dict[str, Any], version: int = 7, validate_only: bool = False) -> Any:
    return wire.send(CREATE_TOPICS, version, topics=topics, timeout=PATIENCE_MS, validate_only=validate_only).topics


def create_error(wire: Wire, **fields: Any) -> ErrorCode:
    (found,) = create(wire, topic_fields(**fields))
    return found.error_code


def delete(wire: Wire, *topics: dict[str, Any]) -> Any:
    return wire.send(DELETE_TOPICS, 6, topics=topics, timeout=PATIENCE_MS).responses


def describe(wire: Wire, type: int, name: str, version: int = 4, **fields: Any) -> Any:
    resource = {"resource_type": type, "resource_name": name, "configuration_keys": None} | fields
    return wire.send(DESCRIBE_CONFIGS, version, resources=[resource], include_synonyms=True).results[0]


def overrides(wire: Wire, topic: str) -> dict[str, str]:
    """The topic's own configuration."""
    return {entry.name: entry.value for entry in describe(wire, TOPIC, topic).configs if entry.config_source == 1}


def alter(wire: Wire, topic: str, *changes: tuple[str, int, str | None], version: int = 1, type: int = TOPIC) -> Any:
    configs = [{"name": name, "config_operation": operation, "value": value} for name, operation, value in changes]
    resource = {"resource_type": type, "resource_name": topic, "configs": configs}
    return wire.send(INCREMENTAL_ALTER_CONFIGS, version, resources=[resource], validate_only=False).responses[0]


@pytest.fixture
def topic(wire: Wire, new_name: NewName) -> str:
    name = new_name()
    assert create_error(wire, name=name, num_partitions=2) is ErrorCode.none
    return name


@every_version(CREATE_TOPICS)
def test_a_topic_is_created_and_described_as_the_version_can(wire: Wire, new_name: NewName, version: int) -> None:
    name = new_name()
    configs = [{"name": "retention.ms", "value": "1000"}]
    (created,) = create(wire, topic_fields(name, num_partitions=3, configs=configs), version=version)
    assert (created.name, created.error_code, created.error_message) == (name, ErrorCode.none, None)
    if version >= 5:
        assert (created.num_partitions, created.replication_factor) == (3, 1)
        shown = {entry.name: entry for entry in created.configs}
        assert (shown["retention.ms"].value, shown["retention.ms"].config_source) == ("1000", 1)
        assert shown["cleanup.policy"].config_source == 5
    if version >= 7:
        assert created.topic_id
    assert overrides(wire, name) == {"retention.ms": "1000"}
    assert describe(wire, TOPIC, "no name").error_code is ErrorCode.invalid_topic_exception


def test_what_is_minus_one_is_the_brokers_default(wire: Wire, new_name: NewName) -> None:
    (created,) = create(wire, topic_fields(new_name(), num_partitions=-1, replication_factor=-1))
    assert (created.num_partitions, created.replication_factor) == (1, 1)


def test_a_topic_that_is_only_validated_is_not_there(wire: Wire, new_name: NewName) -> None:
    name = new_name()
    (checked,) = create(wire, topic_fields(name), validate_only=True)
    assert checked.error_code is ErrorCode.none
    assert describe(wire, TOPIC, name).error_code is ErrorCode.unknown_topic_or_partition


def test_a_topic_named_twice_is_refused_both_times(wire: Wire, new_name: NewName) -> None:
    name = new_name()
    assert [each.error_code for each in create(wire, topic_fields(name), topic_fields(name))] == [
        ErrorCode.invalid_request,
        ErrorCode.invalid_request,
    ]
    assert describe(wire, TOPIC, name).error_code is ErrorCode.unknown_topic_or_partition


def by_hand(*replicas: tuple[int, list[int]]) -> dict[str, Any]:
    parts = [{"partition_index": number, "broker_ids": brokers} for number, brokers in replicas]
    return {"num_partitions": -1, "replication_factor": -1, "assignments": parts}


def test_replicas_can_be_assigned_by_hand(wire: Wire, new_name: NewName) -> None:
    (created,) = create(wire, topic_fields(new_name(), **by_hand((1, [0]), (0, [0]))))
    assert (created.error_code, created.num_partitions) == (ErrorCode.none, 2)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"name": "no spaces"}, ErrorCode.invalid_topic_exception),
        ({"num_partitions": 0}, ErrorCode.invalid_partitions),
        ({"num_partitions": -2}, ErrorCode.invalid_partitions),
        ({"replication_factor": 2}, ErrorCode.invalid_replication_factor),
        ({"replication_factor": 0}, ErrorCode.invalid_replication_factor),
        ({"configs": [{"name": "retention.minutes", "value": "1"}]}, ErrorCode.invalid_config),
        ({"configs": [{"name": "retention.ms", "value": "soon"}]}, ErrorCode.invalid_config),
        ({"configs": [{"name": "retention.ms", "value": None}]}, ErrorCode.invalid_config),
        (by_hand((0, [7])), ErrorCode.invalid_replica_assignment),
        (by_hand((0, [])), ErrorCode.invalid_replica_assignment),
        (by_hand((0, [0, 0])), ErrorCode.invalid_replica_assignment),
        (by_hand((0, [0]), (2, [0])), ErrorCode.invalid_replica_assignment),
        (by_hand((0, [0]), (0, [0])), ErrorCode.invalid_replica_assignment),
        (by_hand((0, [0])) | {"num_partitions": 1}, ErrorCode.invalid_request),
        (by_hand((0, [0])) | {"replication_factor": 1}, ErrorCode.invalid_request),
    ],
)
def test_a_topic_that_cannot_be_is_refused(
    wire: Wire, new_name: NewName, fields: dict[str, Any], error: ErrorCode
) -> None:
    assert create_error(wire, **{"name": new_name()} | fields) is error


def test_a_topic_that_is_there_is_not_created_again(wire: Wire, topic: str) -> None:
    assert create_error(wire, name=topic) is ErrorCode.topic_already_exists


@every_version(DELETE_TOPICS)
def test_a_topic_is_deleted(wire: Wire, topic: str, version: int) -> None:
    response = wire.send(
        DELETE_TOPICS,
        version,
        **({"topics": [{"name": topic, "topic_id": None}]} if version >= 6 else {"topic_names": [topic, "missing"]}),
        timeout=PATIENCE_MS,
    )
    assert [(each.name, each.error_code) for each in response.responses] == [
        (topic, ErrorCode.none),
        ("missing", ErrorCode.unknown_topic_or_partition),
    ][: len(response.responses)]
    assert describe(wire, TOPIC, topic).error_code is ErrorCode.unknown_topic_or_partition


def test_a_topic_is_deleted_by_its_id_and_only_once(wire: Wire, new_name: NewName) -> None:
    (created,) = create(wire, topic_fields(new_name()))
    by_id = {"name": None, "topic_id": created.topic_id}
    (gone,) = delete(wire, by_id)
    assert (gone.name, gone.topic_id, gone.error_code) == (created.name, created.topic_id, ErrorCode.none)
    (missing,) = delete(wire, by_id)
    assert (missing.name, missing.error_code) == (None, ErrorCode.unknown_topic_id)


def test_a_topic_to_delete_is_named_once_and_in_one_way(wire: Wire, new_name: NewName) -> None:
    (created,) = create(wire, topic_fields(new_name()))
    by_name, by_id = {"name": created.name, "topic_id": None}, {"name": None, "topic_id": created.topic_id}
    for topics in (
        [by_name, by_name],
        [by_name, by_id],
        [by_name | by_id | {"name": created.name}],
        [by_id | {"topic_id": None}],
    ):
        assert {each.error_code for each in delete(wire, *topics)} == {ErrorCode.invalid_request}
    assert describe(wire, TOPIC, created.name).error_code is ErrorCode.none


@every_version(CREATE_PARTITIONS)
def test_a_topic_grows(wire: Wire, topic: str, version: int) -> None:
    def grow(count: int, assignments: list[dict[str, Any]] | None = None, validate_only: bool = False) -> Any:
        asked = [{"name": topic, "count": count, "assignments": assignments}]
        response = wire.send(CREATE_PARTITIONS, version, topics=asked, timeout=PATIENCE_MS, validate_only=validate_only)
        return response.results[0]

    assert grow(3, validate_only=True).error_code is ErrorCode.none
    assert grow(3).error_code is ErrorCode.none
    assert grow(4, [{"broker_ids": [0]}]).error_code is ErrorCode.none
    assert grow(4).error_code is ErrorCode.invalid_partitions
    assert grow(6, [{"broker_ids": [0]}]).error_code is ErrorCode.invalid_replica_assignment
    wrong = grow(5, [{"broker_ids": [9]}])
    assert wrong.error_code is ErrorCode.invalid_replica_assignment
    assert "broker 9" in wrong.error_message


def test_partitions_of_a_topic_that_is_missing_or_named_twice(wire: Wire, topic: str) -> None:
    asked = [{"name": name, "count": 3, "assignments": None} for name in (topic, topic, "missing")]
    results = wire.send(CREATE_PARTITIONS, 3, topics=asked, timeout=PATIENCE_MS, validate_only=False).results
    assert [each.error_code for each in results] == [
        ErrorCode.invalid_request,
        ErrorCode.invalid_request,
        ErrorCode.unknown_topic_or_partition,
    ]


@every_version(DELETE_RECORDS)
def test_records_are_deleted(wire: Wire, topic: str, version: int) -> None:
    parts = [{"partition_index": 0, "offset": -1}, {"partition_index": 1, "offset": 5}]
    missing = {"name": "missing", "partitions": parts[:1]}
    topics = wire.send(
        DELETE_RECORDS, version, topics=[{"name": topic, "partitions": parts}, missing], timeout=PATIENCE_MS
    )
    assert [
        (found.name, part.partition_index, part.low_watermark, part.error_code)
        for found in topics.topics
        for part in found.partitions
    ] == [
        (topic, 0, 0, ErrorCode.none),
        (topic, 1, -1, ErrorCode.offset_out_of_range),
        ("missing", 0, -1, ErrorCode.unknown_topic_or_partition),
    ]


@every_version(DESCRIBE_CONFIGS)
def test_a_topics_configuration_says_where_each_value_is_from(wire: Wire, topic: str, version: int) -> None:
    alter(wire, topic, ("retention.ms", SET, "1000"))
    found = describe(wire, TOPIC, topic, version)
    assert (found.error_code, found.resource_type, found.resource_name) == (ErrorCode.none, TOPIC, topic)
    entry = {entry.name: entry for entry in found.configs}["retention.ms"]
    assert (entry.value, entry.config_source, entry.read_only, entry.is_sensitive) == ("1000", 1, False, False)
    assert [(each.name, each.value, each.source) for each in entry.synonyms] == [
        ("retention.ms", "1000", 1),
        ("log.retention.ms", "604800000", 5),
    ]
    if version >= 3:
        assert (entry.config_type, entry.documentation) == (5, None)


def test_documentation_and_single_keys_are_given_on_request(wire: Wire, topic: str) -> None:
    resource = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": ["segment.bytes", "unknown"]}
    (found,) = wire.send(DESCRIBE_CONFIGS, 4, resources=[resource], include_documentation=True).results
    (entry,) = found.configs
    assert (entry.name, entry.synonyms, entry.config_type) == ("segment.bytes", (), 3)
    assert entry.documentation.startswith("Roll to a new segment")


def test_the_brokers_configuration_is_read_only(wire: Wire) -> None:
    entries = {entry.name: entry for entry in describe(wire, BROKER, "0").configs}
    assert entries["listeners"].config_source == 4
    assert entries["log.segment.bytes"].config_source == 5
    assert {name for name, entry in entries.items() if not entry.read_only} == set(CHANGEABLE)
    secret = entries["ssl.key.password"]
    assert (secret.is_sensitive, secret.value, [each.value for each in secret.synonyms]) == (True, None, [None])
    assert describe(wire, BROKER, "7").error_code is ErrorCode.invalid_request


def test_what_all_brokers_go_by_is_described_alone(wire: Wire) -> None:
    assert describe(wire, BROKER, "").configs == ()
    rate = "leader.replication.throttled.rate"
    assert alter(wire, "", (rate, SET, "1000"), type=BROKER).error_code is ErrorCode.none
    assert alter(wire, "0", (rate, SET, "2000"), type=BROKER).error_code is ErrorCode.none

    def described(name: str) -> tuple[str | None, int]:
        entry = next(each for each in describe(wire, BROKER, name).configs if each.name == rate)
        return entry.value, entry.config_source

    wait_until(lambda: (described("0"), described("")) == (("2000", 2), ("1000", 3)), "both changes have arrived")
    assert [each.name for each in describe(wire, BROKER, "").configs] == [rate]
    assert alter(wire, "", (rate, DELETE, None), type=BROKER).error_code is ErrorCode.none
    assert alter(wire, "0", (rate, DELETE, None), type=BROKER).error_code is ErrorCode.none


@pytest.mark.parametrize("type", [BROKER_LOGGER, GROUP, 99])
def test_what_has_no_configuration_is_refused(wire: Wire, type: int) -> None:
    assert describe(wire, type, "0").error_code is ErrorCode.invalid_request
    assert alter(wire, "0", ("kafka", SET, "DEBUG"), type=type).error_code is ErrorCode.invalid_request


@every_version(ALTER_CONFIGS)
def test_a_configuration_is_replaced(wire: Wire, topic: str, version: int) -> None:
    def replace(**configs: str | None) -> ErrorCode:
        wanted = [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()]
        resource = {"resource_type": TOPIC, "resource_name": topic, "configs": wanted}
        response = wire.send(ALTER_CONFIGS, version, resources=[resource], validate_only=False)
        return response.responses[0].error_code

    assert replace(retention_ms="1000", cleanup_policy="compact") is ErrorCode.none
    assert replace(retention_ms="2000") is ErrorCode.none
    assert overrides(wire, topic) == {"retention.ms": "2000"}
    assert replace(retention_ms=None) is ErrorCode.invalid_request
    assert replace(retention_ms="soon") is ErrorCode.invalid_config
    assert overrides(wire, topic) == {"retention.ms": "2000"}


@every_version(INCREMENTAL_ALTER_CONFIGS)
def test_single_keys_are_changed(wire: Wire, topic: str, version: int) -> None:
    def changed(*changes: tuple[str, int, str | None]) -> ErrorCode:
        return alter(wire, topic, *changes, version=version).error_code

    assert changed(("retention.ms", SET, "1000"), ("cleanup.policy", APPEND, "compact,delete")) is ErrorCode.none
    assert overrides(wire, topic) == {"retention.ms": "1000", "cleanup.policy": "delete,compact"}
    assert changed(("retention.ms", DELETE, None), ("cleanup.policy", SUBTRACT, "delete")) is ErrorCode.none
    assert overrides(wire, topic) == {"cleanup.policy": "compact"}
    assert changed(("retention.ms", SET, None)) is ErrorCode.invalid_request
    assert changed(("retention.ms", 4, "1")) is ErrorCode.invalid_request
    assert changed(("retention.ms", SET, "1"), ("retention.ms", DELETE, None)) is ErrorCode.invalid_request
    assert changed(("retention.ms", APPEND, "1")) is ErrorCode.invalid_config
    assert changed(("retention.ms", SET, "1"), ("retention.minutes", SET, "1")) is ErrorCode.invalid_config
    assert overrides(wire, topic) == {"cleanup.policy": "compact"}


def test_changes_that_are_only_validated_change_nothing(wire: Wire, topic: str) -> None:
    def checked(key: int, value: str) -> ErrorCode:
        config = {"name": "retention.ms", "value": value}
        if key == INCREMENTAL_ALTER_CONFIGS:
            config["config_operation"] = SET
        resource = {"resource_type": TOPIC, "resource_name": topic, "configs": [config]}
        return wire.send(key, 1, resources=[resource], validate_only=True).responses[0].error_code

    for key in (ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS):
        assert checked(key, "1000") is ErrorCode.none
        assert checked(key, "soon") is ErrorCode.invalid_config
    assert overrides(wire, topic) == {}


def test_a_resource_named_twice_is_refused_both_times(wire: Wire, topic: str) -> None:
    config = {"name": "retention.ms", "config_operation": SET, "value": "1000"}
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": [config]}
    done = wire.send(INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource] * 2, validate_only=False).responses
    assert [each.error_code for each in done] == [ErrorCode.invalid_request] * 2
    assert overrides(wire, topic) == {}


def test_a_broker_or_a_missing_topic_is_not_altered(wire: Wire) -> None:
    change = ("num.partitions", SET, "2")
    assert alter(wire, "0", change, type=BROKER).error_code is ErrorCode.invalid_request
    missing = alter(wire, "missing", ("retention.ms", SET, "1"))
    assert missing.error_code is ErrorCode.unknown_topic_or_partition
    assert (missing.resource_type, missing.resource_name) == (TOPIC, "missing")


@every_version(DESCRIBE_LOG_DIRS)
def test_log_directories_show_what_lies_in_them(
    wire: Wire, kafka_broker: RunningBroker, topic: str, version: int
) -> None:
    response = wire.send(DESCRIBE_LOG_DIRS, version, topics=[{"topic": topic, "partitions": [1, 9]}])
    (log_dir,) = response.results
    assert log_dir.log_dir == str(kafka_broker.data_dir)
    assert [(found.name, [part.partition_index for part in found.partitions]) for found in log_dir.topics] == [
        (topic, [1])
    ]
    if version >= 4:
        assert 0 < log_dir.usable_bytes < log_dir.total_bytes
    every = wire.send(DESCRIBE_LOG_DIRS, version, topics=None).results[0]
    assert topic in {found.name for found in every.topics}
    assert wire.send(DESCRIBE_LOG_DIRS, version, topics=[]).results[0].topics == ()


@every_version(LIST_CONFIG_RESOURCES)
def test_what_has_a_configuration_is_listed(wire: Wire, topic: str, version: int) -> None:
    def listed(*types: int) -> set[tuple[int, str]]:
        response = wire.send(LIST_CONFIG_RESOURCES, version, resource_types=types)
        return {(each.resource_type, each.resource_name) for each in response.config_resources}

    if version == 0:
        assert wire.send(LIST_CONFIG_RESOURCES, 0).config_resources == ()
        return
    assert {(TOPIC, topic), (BROKER, "0")} <= listed()
    assert listed(BROKER) == {(BROKER, "0")}
    assert listed(GROUP) == set()
    assert wire.send(LIST_CONFIG_RESOURCES, 1, resource_types=[99]).error_code is ErrorCode.unsupported_version


def test_a_deleted_topic_leaves_nothing_behind(wire: Wire, kafka_broker: RunningBroker, topic: str) -> None:
    delete(wire, {"name": topic, "topic_id": None})
    assert TopicPartition(topic, 0) not in {replica.partition.name for replica in kafka_broker.node.broker.replicas()}
    assert delete(wire, {"name": None, "topic_id": uuid.uuid4()})[0].error_code is ErrorCode.unknown_topic_id


ACL = {"resource_type": TOPIC, "resource_name": "t", "principal": "User:a", "host": "*", "operation": 3}
ACL_FILTER = {
    "resource_type_filter": TOPIC,
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


@every_version(DESCRIBE_ACLS)
def test_there_is_no_authorizer_to_ask(wire: Wire, version: int) -> None:
    described = wire.send(DESCRIBE_ACLS, version, **ACL_FILTER)
    assert (described.error_code, described.resources) == (ErrorCode.security_disabled, ())
    created = wire.send(CREATE_ACLS, version, creations=[ACL | {"permission_type": 3}] * 2).results
    assert [each.error_code for each in created] == [ErrorCode.security_disabled] * 2
    (deleted,) = wire.send(DELETE_ACLS, version, filters=[ACL_FILTER]).filter_results
    assert (deleted.error_code, deleted.matching_acls) == (ErrorCode.security_disabled, ())


@every_version(ELECT_LEADERS)
def test_the_only_replica_leads_already(wire: Wire, topic: str, version: int) -> None:
    asked = [{"topic": topic, "partitions": [0, 9]}]
    (found,) = wire.send(ELECT_LEADERS, version, election_type=0, topic_partitions=asked).replica_election_results
    assert [(part.partition_id, part.error_code) for part in found.partition_result] == [
        (0, ErrorCode.election_not_needed),
        (9, ErrorCode.unknown_topic_or_partition),
    ]
    assert wire.send(ELECT_LEADERS, version, election_type=0, topic_partitions=None).replica_election_results == ()


def test_an_election_that_there_is_not_is_refused_as_a_whole(wire: Wire, topic: str) -> None:
    found = wire.send(ELECT_LEADERS, 2, election_type=7, topic_partitions=None)
    assert (found.error_code, found.replica_election_results) == (ErrorCode.invalid_request, ())


def test_no_partition_is_on_the_move(wire: Wire, topic: str) -> None:
    asked = [{"name": topic, "partition_indexes": [0]}]
    for topics in (asked, None):
        found = wire.send(LIST_PARTITION_REASSIGNMENTS, 0, topics=topics)
        assert (found.error_code, found.topics) == (ErrorCode.none, ())


@every_version(ALTER_PARTITION_REASSIGNMENTS)
def test_a_partition_is_moved_to_where_it_is_and_nowhere_else(wire: Wire, topic: str, version: int) -> None:
    asked = [
        {"partition_index": 0, "replicas": [0]},
        {"partition_index": 1, "replicas": [7]},
        {"partition_index": 2, "replicas": [0]},
    ]
    found = wire.send(ALTER_PARTITION_REASSIGNMENTS, version, topics=[{"name": topic, "partitions": asked}])
    [answered] = found.responses
    assert (found.error_code, answered.name) == (ErrorCode.none, topic)
    assert [(part.partition_index, part.error_code) for part in answered.partitions] == [
        (0, ErrorCode.none),
        (1, ErrorCode.invalid_replica_assignment),
        (2, ErrorCode.unknown_topic_or_partition),
    ]
    cancelled = [{"partition_index": 0, "replicas": None}]
    found = wire.send(ALTER_PARTITION_REASSIGNMENTS, version, topics=[{"name": topic, "partitions": cancelled}])
    assert found.responses[0].partitions[0].error_code is ErrorCode.no_reassignment_in_progress

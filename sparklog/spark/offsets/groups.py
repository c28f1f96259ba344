"""Groups and their members, rebuilt from the records of one partition of the offsets topic, in log order.

A classic group writes a whole generation in one record. A group of the new protocol (KIP-848) has two records for each
member: its description (5) and its current assignment (8), which names topics by id. Both kinds yield the members,
their clients and their partitions. A commit does not name its member. It is ascribed to the member that owned the
partition then, or to no member if none did (simple consumers, `sparklog groups reset-offsets`).
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from sparklog.base.consumer_protocol import PROTOCOL_TYPE, read_assignment, read_subscription
from sparklog.base.ids import encode_id
from sparklog.base.schemas import read_key, read_value
from sparklog.offsets_topic.schemas import OFFSETS_TOPIC

CLASSIC, CONSUMER = "classic", "consumer"
CLASSIC_GROUP, CONSUMER_MEMBER, CURRENT_ASSIGNMENT = 2, 5, 8
"""The types of records that describe members."""
OWNERS = pa.schema(
    [(name, pa.string()) for name in ("group_id", "topic")]
    + [("partition", pa.int32())]
    + [(name, pa.string()) for name in ("member_id", "client_id", "client_host")]
)
TopicNames = Mapping[str, str]
"""Topic names by topic id."""
logger = logging.getLogger(__name__)


class RecordPosition(NamedTuple):
    """Offset and timestamp of a record in the log."""

    offset: int
    time_ms: int


class PartitionGroups:
    """The groups of one partition, as of the records taken so far."""

    def __init__(self) -> None:
        self._classic: dict[str, list[dict[str, Any]]] = {}
        self._members: dict[tuple[str, str], dict[str, Any]] = {}
        self._current: dict[tuple[str, str], dict[str, Any]] = {}

    def take(self, key: bytes, value: bytes | None, place: RecordPosition) -> bool:
        """Take a record, and return whether it describes members. Log and skip a record that cannot be read."""
        try:
            return self._apply_record(key, value, place)
        except (ValueError, struct.error, KeyError) as error:
            logger.warning("the record at offset %d cannot be read: %s", place.offset, error)
            return False

    def _apply_record(self, key: bytes, value: bytes | None, place: RecordPosition) -> bool:
        kind, names = read_key(key, OFFSETS_TOPIC)
        if names is None or kind not in (CLASSIC_GROUP, CONSUMER_MEMBER, CURRENT_ASSIGNMENT):
            return False
        fields = None if value is None else read_value(value, OFFSETS_TOPIC[kind][1])[1]
        if kind == CLASSIC_GROUP:
            self._put_or_remove(
                self._classic, names["group"], fields and _classic_members(names["group"], fields, place)
            )
            return True
        table = self._members if kind == CONSUMER_MEMBER else self._current
        read = _consumer_member if kind == CONSUMER_MEMBER else _current_assignment
        self._put_or_remove(table, (names["groupId"], names["memberId"]), fields and read(fields, place))
        return True

    @staticmethod
    def _put_or_remove(table: dict[Any, Any], key: Any, value: Any) -> None:
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each member; `assignment` names topics by name or by id, as the group's protocol does."""
        for members in self._classic.values():
            yield from members
        for (group_id, member_id), described in self._members.items():
            has = self._current.get((group_id, member_id), {"epoch": None, "assignment": []})
            newest = max(described, has, key=lambda each: each.get("log_offset", -1))
            yield {
                **described, **has, "group_id": group_id, "member_id": member_id, "protocol": CONSUMER,
                "log_offset": newest["log_offset"], "log_time": newest["log_time"],
            }  # fmt: skip

    def owners(self, names: TopicNames) -> pa.Table:
        """Return the owner of each partition, with the schema OWNERS."""
        rows = {
            (row["group_id"], each["topic"] or names.get(each["topic_id"]), partition): row
            for row in self.rows()
            for each in row["assignment"]
            for partition in each["partitions"]
        }
        return pa.Table.from_pylist(
            [
                {"group_id": group, "topic": topic, "partition": partition}
                | {name: row[name] for name in ("member_id", "client_id", "client_host")}
                for (group, topic, partition), row in rows.items()
            ],
            OWNERS,
        )


def _classic_members(group_id: str, fields: dict[str, Any], place: RecordPosition) -> list[dict[str, Any]]:
    is_of_consumers = fields["protocolType"] == PROTOCOL_TYPE
    return [
        {
            "group_id": group_id,
            "member_id": member["memberId"],
            "protocol": CLASSIC,
            "epoch": fields["generation"],
            "group_instance_id": member.get("groupInstanceId"),
            "client_id": member["clientId"],
            "client_host": member["clientHost"],
            "is_leader": member["memberId"] == fields["leader"],
            "assignor": fields["protocol"],
            "subscribed_topics": _decode_subscription(member["subscription"]) if is_of_consumers else None,
            "assignment": _decode_assignment(member["assignment"]) if is_of_consumers else [],
            "log_offset": place.offset,
            "log_time": place.time_ms,
        }
        for member in fields["members"]
    ]


def _decode_subscription(data: bytes) -> list[str] | None:
    try:
        return list(read_subscription(data).topics)
    except ValueError:
        return None  # a format of the client's own


def _decode_assignment(data: bytes) -> list[dict[str, Any]]:
    try:
        partitions = read_assignment(data).partitions
    except ValueError:
        return []
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    return [{"topic": topic, "topic_id": None, "partitions": numbers} for topic, numbers in by_topic.items()]


def _consumer_member(fields: dict[str, Any], place: RecordPosition) -> dict[str, Any]:
    return {
        "group_instance_id": fields["instanceId"],
        "client_id": fields["clientId"],
        "client_host": fields["clientHost"],
        "rack_id": fields["rackId"],
        "assignor": fields["serverAssignor"],
        "subscribed_topics": fields["subscribedTopicNames"],
        "subscribed_regex": fields["subscribedTopicRegex"] or None,
        "log_offset": place.offset,
        "log_time": place.time_ms,
    }


def _current_assignment(fields: dict[str, Any], place: RecordPosition) -> dict[str, Any]:
    return {
        "epoch": fields["memberEpoch"],
        "assignment": [
            {"topic": None, "topic_id": encode_id(each["topicId"]), "partitions": each["partitions"]}
            for each in fields["assignedPartitions"]
        ],
        "log_offset": place.offset,
        "log_time": place.time_ms,
    }

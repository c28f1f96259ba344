"""Identifiers of topics and partitions, in Kafka's forms."""

from __future__ import annotations

import base64
import re
import uuid
from typing import NamedTuple

from sparklog.base.errors import InvalidTopic

MAX_TOPIC_LENGTH = 249
_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__cluster_history"})


class TopicPartition(NamedTuple):
    """One partition of one topic; its text form, such as ``orders-3``, is also the folder's name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def parse(cls, name: str) -> TopicPartition:
        """Return the partition of a folder name such as ``orders-3``. Raises ValueError for any other form."""
        topic, dash, partition = name.rpartition("-")
        if not (dash and topic and partition.isascii() and partition.isdigit()):
            raise ValueError(f"{name!r} is not <topic>-<partition>")
        return cls(topic, int(partition))


def check_topic(name: str) -> str:
    """Return `name` if Kafka would accept it as a topic name (org.apache.kafka.common.internals.Topic).

    Raises InvalidTopic, with the reason.
    """
    if not name:
        raise InvalidTopic("a topic name cannot be empty")
    if name in (".", ".."):
        raise InvalidTopic(f"a topic cannot be named {name!r}")
    if len(name) > MAX_TOPIC_LENGTH:
        raise InvalidTopic(f"topic name of {len(name)} characters: the limit is {MAX_TOPIC_LENGTH}")
    if not _LEGAL_TOPIC.fullmatch(name):
        raise InvalidTopic(f"topic name {name!r}: only ASCII letters, digits, '.', '_' and '-' are allowed")
    return name


def encode_id(topic_id: uuid.UUID) -> str:
    """Return a topic id in Kafka's text form: 22 characters of base64 (org.apache.kafka.common.Uuid)."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def decode_id(text: str) -> uuid.UUID:
    """Return the id that `encode_id` wrote. Raises ValueError for any other text."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))

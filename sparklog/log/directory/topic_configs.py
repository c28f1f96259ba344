"""Copies of topic configurations beside the topics' folders, so that a lost cluster store does not change retention.

    <log dir>/topic-config-checkpoint
        {"version": 0, "seen_change": 812, "topics": {
         "orders": {"topic_id": "CeWNTpoLSru0hj3_5YiFeQ", "configs": {"retention.ms": "-1"}}}}

The cluster store holds a topic's valid configuration; this file holds the last known copy. `seen_change` is the number
of the store's newest change at that time: a store whose newest change has a lower number has lost some. A topic has a
`leader_epoch` once its epochs have leapt (broker/adoption.py): clients may know it, though no record has it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from uuid import UUID

from sparklog.base.errors import InvalidConfig
from sparklog.base.fs import Fs
from sparklog.base.ids import decode_id, encode_id
from sparklog.base.topic_config import TopicConfig
from sparklog.log.directory.checkpoints import CorruptCheckpoint, read_file, replace_file

TOPIC_CONFIGS = "topic-config-checkpoint"
_VERSION = 0
Overrides = Mapping[str, str]
"""A topic's own configuration, by Kafka's keys."""
UNLIMITED: Overrides = MappingProxyType({"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"})
"""The configuration of an unknown topic: all its records are kept."""
_INSTEAD: Mapping[str, Overrides] = MappingProxyType(
    {
        **{key: {key: UNLIMITED[key]} for key in ("retention.ms", "retention.bytes")},
        **dict.fromkeys(
            ("cleanup.policy", "compaction.strategy", "delete.retention.ms", "min.compaction.lag.ms"), UNLIMITED
        ),
    }
)
"""What applies if one of these keys cannot be read: it would have said which records stay."""
logger = logging.getLogger(__name__)


def config_of(topic: str, overrides: Overrides, defaults: TopicConfig) -> TopicConfig:
    """Return a topic's effective configuration.

    A key that cannot be read is ignored, such as one of a later version or of Apache Kafka's tools. No default takes
    its place if it would delete records that the key may have kept.
    """
    try:
        return TopicConfig.parse(overrides, defaults)
    except InvalidConfig:
        pass  # one key after the other, then
    config = defaults
    instead: dict[str, str] = {}
    for key, value in overrides.items():
        try:
            config = TopicConfig.parse({key: value}, config)
        except InvalidConfig as error:
            instead |= _INSTEAD.get(key, {})
            stays = "; until it is set again, its records stay" if key in _INSTEAD else ""
            logger.error("topic %s: key %s is ignored: %s%s", topic, key, error, stays)
    return TopicConfig.parse(instead, config)


@dataclass(frozen=True, slots=True)
class KeptConfig:
    """The copy of one topic's configuration."""

    topic_id: UUID | None
    overrides: Overrides
    leader_epoch: int = -1
    """The highest one that its partitions have leapt to; -1: they never have."""


@dataclass(frozen=True, slots=True)
class KeptConfigs:
    """The copies for the topics that have folders in one log directory."""

    topics: Mapping[str, KeptConfig] = field(default_factory=dict)
    seen_change: int = 0


class TopicConfigCheckpoint:
    """The file with the copies. The caller makes sure that only one thread writes it at a time."""

    def __init__(self, fs: Fs, folder: str) -> None:
        self._fs = fs
        self._path = f"{folder}/{TOPIC_CONFIGS}"

    def read(self) -> KeptConfigs:
        """Return the copies; empty if there is no file. Raises CorruptCheckpoint or OSError."""
        if not self._fs.exists(self._path):
            return KeptConfigs()
        try:
            content = json.loads(read_file(self._fs, self._path))
            if content["version"] != _VERSION:
                raise CorruptCheckpoint(f"{self._path}: version {content['version']}, only {_VERSION} is known")
            topics = {str(name): _decode(topic) for name, topic in content["topics"].items()}
            return KeptConfigs(topics, int(content["seen_change"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptCheckpoint(f"{self._path}: {error!r}") from None

    def write(self, kept: KeptConfigs) -> None:
        """Replace the file. Raises OSError."""
        content = {
            "version": _VERSION,
            "seen_change": kept.seen_change,
            "topics": {name: _encode(topic) for name, topic in sorted(kept.topics.items())},
        }
        replace_file(self._fs, self._path, json.dumps(content, separators=(",", ":")).encode())


def _encode(kept: KeptConfig) -> dict[str, Any]:
    content = {"topic_id": encode_id(kept.topic_id) if kept.topic_id else None, "configs": dict(kept.overrides)}
    return content if kept.leader_epoch < 0 else content | {"leader_epoch": kept.leader_epoch}


def _decode(content: Mapping[str, Any]) -> KeptConfig:
    topic_id = content["topic_id"]
    overrides = {str(key): str(value) for key, value in content["configs"].items()}
    return KeptConfig(
        None if topic_id is None else decode_id(topic_id), overrides, int(content.get("leader_epoch", -1))
    )

"""What has a configuration: topics by their names, brokers by their ids."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from sparklog.base.errors import InvalidRequest


class ResourceType(IntEnum):
    TOPIC = 0
    BROKER = 1


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A topic by its name, or the broker by its id; an empty name is this broker."""

    type: int
    name: str

    def check(self, broker_id: int) -> None:
        """Raises InvalidRequest where the type does not exist or another broker is meant."""
        if self.type not in tuple(ResourceType):
            raise InvalidRequest("only topics and brokers have a configuration here")
        if self.type == ResourceType.BROKER and self.name not in ("", str(broker_id)):
            raise InvalidRequest(f"this is broker {broker_id}, not {self.name!r}")

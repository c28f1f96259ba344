"""The topics of a subscription: by name, or by a regular expression for the names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sparklog.base.errors import ConfigError
from sparklog.base.ids import INTERNAL_TOPICS, check_topic


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelection:
    """Topics by name, or topics that match `allow` and not `deny`; a match is of the whole name."""

    names: frozenset[str] = frozenset()
    allow: re.Pattern[str] | None = None
    deny: re.Pattern[str] | None = None
    internal: bool = False
    """Whether expressions also match the brokers' internal topics."""

    def topics(self, existing: Iterable[str]) -> frozenset[str]:
        """Return the selected topics, given the existing ones; named topics need not exist yet."""
        if self.allow is None:
            return self.names
        return frozenset(name for name in existing if self._matches(self.allow, name))

    def _matches(self, allow: re.Pattern[str], name: str) -> bool:
        if not allow.fullmatch(name) or (name in INTERNAL_TOPICS and not self.internal):
            return False
        return self.deny is None or not self.deny.fullmatch(name)


def select(topics: Iterable[str] | None, pattern: str | None, deny: str | None, *, internal: bool) -> TopicSelection:
    """Return the selection of a `subscribe`; raises ConfigError if it is invalid, InvalidTopic for an invalid name."""
    if (topics is None) == (pattern is None):
        raise ConfigError("subscribe takes topics or a pattern, one of the two")
    if topics is not None:
        if deny is not None:
            raise ConfigError("deny needs a pattern: to leave out a named topic, do not name it")
        names = [topics] if isinstance(topics, str) else list(topics)
        return TopicSelection(names=frozenset(check_topic(name) for name in names))
    assert pattern is not None  # one of the two is there
    return TopicSelection(
        allow=_compile("pattern", pattern), deny=None if deny is None else _compile("deny", deny), internal=internal
    )


def _compile(option: str, expression: str) -> re.Pattern[str]:
    try:
        return re.compile(expression)
    except re.error as error:
        raise ConfigError(f"{option} = {expression!r} is no regular expression: {error}") from None

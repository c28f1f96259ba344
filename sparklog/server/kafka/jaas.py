r"""Users of PLAIN in Apache Kafka's format: a line of JAAS configuration.

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="broker" password="…"          for connections between Kafka's brokers: parsed but ignored
        user_alice="her password"
        user_bob="his \"best\" one";            in quotes, \" and \\ stand for " and \

Parsing is strict: any other text is refused. Error messages never repeat the text, because it holds passwords.
"""

from __future__ import annotations

import re

from sparklog.base.errors import ConfigError

_MODULE = r"org\.apache\.kafka\.common\.security\.plain\.PlainLoginModule\s+required"
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_OPTION = re.compile(rf'\s+({_QUOTED}|[\w.$-]+)\s*=\s*({_QUOTED}|[^\s"=;]+)')
_WHOLE = re.compile(rf"\s*{_MODULE}((?:{_OPTION.pattern})*)\s*;\s*", re.DOTALL)
_PREFIX = "user_"


def parse_plain_users(text: str) -> dict[str, str]:
    """Return the passwords by user; empty for an empty text. Raises ConfigError if the text has another form."""
    if not text.strip():
        return {}
    whole = _WHOLE.fullmatch(text)
    if whole is None:
        raise ConfigError(
            "plain.sasl.jaas.config: it must be org.apache.kafka.common.security.plain.PlainLoginModule required "
            'user_NAME="PASSWORD" …; with a semicolon at the end'
        )
    users: dict[str, str] = {}
    for found in _OPTION.finditer(whole[1]):
        name, value = _bare(found[1]), _bare(found[2])
        if name in ("username", "password"):
            continue
        user = name.removeprefix(_PREFIX)
        if not (name.startswith(_PREFIX) and user and value) or user in users:
            raise ConfigError("plain.sasl.jaas.config: each user is given once, as user_NAME=PASSWORD")
        users[user] = value
    return users


def _bare(word: str) -> str:
    return re.sub(r"\\(.)", r"\1", word[1:-1]) if word.startswith('"') else word

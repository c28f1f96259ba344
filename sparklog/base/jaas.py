r"""A line of JAAS configuration, as Kafka's brokers and clients have it: a login module and its options.

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="alice" password="her \"own\" secret";                  in quotes, \" and \\ stand for " and \

Parsing is strict: any other text is refused. Error messages never repeat the text, because it holds passwords.
"""

from __future__ import annotations

import base64
import re
from typing import NamedTuple

from sparklog.base.errors import ConfigError

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_OPTION = re.compile(rf'\s+({_QUOTED}|[\w.$-]+)\s*=\s*({_QUOTED}|[^\s"=;]+)', re.DOTALL)
_WHOLE = re.compile(rf"\s*([\w.$]+)\s+required((?:{_OPTION.pattern})*)\s*;\s*", re.DOTALL)


class LoginModule(NamedTuple):
    """A login module with its options, in their order; a name may occur twice."""

    module: str
    options: tuple[tuple[str, str], ...]

    def option(self, name: str) -> str:
        """Return the value of an option; empty if it is missing."""
        return dict(self.options).get(name, "")


def parse_login(key: str, text: str, *modules: str) -> LoginModule:
    """Return the login module in the value of the configuration key `key`.

    Raises ConfigError if the text has another form or another module than `modules`.
    """
    whole = _WHOLE.fullmatch(text)
    if whole is None or whole[1] not in modules:
        raise ConfigError(
            f'{key}: it must be {" or ".join(modules)} required NAME="VALUE" …; with a semicolon at the end'
        )
    options = tuple((_unquoted(found[1]), _unquoted(found[2])) for found in _OPTION.finditer(whole[2]))
    return LoginModule(whole[1], options)


def _unquoted(word: str) -> str:
    return re.sub(r"\\(.)", r"\1", word[1:-1]) if word.startswith('"') else word


def basic_authorization(user: str, password: str) -> tuple[str, str]:
    """Return the metadata that carries user and password in a gRPC call (RFC 7617)."""
    return "authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

"""Mapping of certificates to principals by `ssl.principal.mapping.rules`, as by Apache Kafka's SslPrincipalMapper.

Rules are separated by commas. The first rule whose pattern matches the certificate's whole name makes the principal:

    RULE:PATTERN/REPLACEMENT/[LU]    $1 … $9 in the replacement stand for the pattern's groups; L: lower case, U: upper
    DEFAULT                          the name itself

    RULE:^CN=([^,]*),OU=ops.*$/$1/L,DEFAULT       CN=Alice,OU=ops,O=Example → alice
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sparklog.base.errors import ConfigError, SaslAuthenticationFailed

DEFAULT = "DEFAULT"
_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|\n|$)")
_GROUP = re.compile(r"\$(\d)")
KEY = "ssl.principal.mapping.rules"


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """None: the rule DEFAULT."""
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        """Return the principal's name; None if the pattern does not match."""
        if self.pattern is None:
            return name
        found = self.pattern.fullmatch(name)
        if found is None:
            return None
        made = _GROUP.sub(lambda group: found[int(group[1])] or "", self.replacement)
        return {"L": made.lower(), "U": made.upper()}.get(self.case, made)


class PrincipalMapper:
    """The rules of one broker."""

    def __init__(self, rules: str = DEFAULT) -> None:
        """Raises ConfigError if the text has another form, or a pattern is not a regular expression."""
        self._text = rules
        self._rules = list(_parse(rules.strip() or DEFAULT))

    def principal(self, name: str) -> str:
        """Return the principal of a certificate with this name.

        Raises SaslAuthenticationFailed if no rule applies; the client is refused.
        """
        for rule in self._rules:
            if (made := rule.apply(name)) is not None:
                return f"User:{made}"
        raise SaslAuthenticationFailed(f"no rule of {KEY} applies to the certificate of {name}")


def _parse(text: str) -> list[_Rule]:
    rules, position = [], 0
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None:
            raise ConfigError(f"{KEY}: {text[position:]!r} is no rule: RULE:PATTERN/REPLACEMENT/[LU] or DEFAULT")
        rules.append(_rule(found))
        position = found.end()
    return rules


def _rule(found: re.Match[str]) -> _Rule:
    if found[1]:
        return _Rule(None, "", "")
    try:
        pattern = re.compile(found[2])
    except re.error as error:
        raise ConfigError(f"{KEY}: {found[2]!r} is not a regular expression: {error}") from None
    groups = [int(group) for group in _GROUP.findall(found[3])]
    if groups and max(groups) > pattern.groups:
        raise ConfigError(f"{KEY}: the replacement {found[3]!r} names a group that {found[2]!r} does not have")
    return _Rule(pattern, found[3], found[4])

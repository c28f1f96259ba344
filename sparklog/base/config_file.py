"""Where a broker's configuration comes from, the weakest first: a TOML file, the environment, ``KEY=VALUE`` arguments.

    [log]                                    a TOML key is Kafka's name for it, its dots being TOML's dots,
    segment.bytes = 1_073_741_824            so tables may be used or not: log.segment.bytes = …
    dirs = ["/data/a", "/data/b"]            a list may be written as an array or with commas
    "max.connections.per.ip" = 100           in quotes where the beginning is a key itself, as max.connections is

    SPARKLOG_CONFIG_LOG_SEGMENT_BYTES        in the environment: capitals, with underscores for dots

Every key and value is checked, and an error says where it was written. Line numbers of keys are found by reading the
file a second time, as Python's TOML reader has none: in a file with multi-line strings or arrays of tables, neither of
which has a place here, a number may be missing.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from sparklog.base.config import BrokerConfig, Setting, parse_broker_config
from sparklog.base.errors import ConfigError

ENVIRONMENT_PREFIX = "SPARKLOG_CONFIG_"
_TABLE = re.compile(r"\s*\[\s*([A-Za-z0-9_.\s-]+?)\s*\]")
_KEY = re.compile(r"\s*\"?([A-Za-z0-9_.\s-]+?)\"?\s*=")


def load_broker_config(path: str | None, environment: Mapping[str, str], arguments: Iterable[str]) -> BrokerConfig:
    """The configuration from all three places; raises ConfigError, saying where, for anything that is wrong."""
    in_file = read_toml(path) if path else []
    return parse_broker_config([*in_file, *read_environment(environment), *read_arguments(arguments)])


def given_keys(path: str | None, environment: Mapping[str, str], arguments: Iterable[str]) -> set[str]:
    """The keys that any of the three places says something of; raises as `load_broker_config` does."""
    in_file = read_toml(path) if path else []
    return {setting.name for setting in [*in_file, *read_environment(environment), *read_arguments(arguments)]}


class Written(NamedTuple):
    """A value in a TOML file."""

    name: str
    """The key's name, after those of the tables that it is in, with dots between."""
    value: Any
    where: str
    """FILE:LINE, to begin an error with."""


def read_toml(path: str) -> list[Setting]:
    """The settings in a TOML file; raises ConfigError where it cannot be read or is not TOML."""
    return [Setting(name, _text(name, value, where), where) for name, value, where in read_values(path)]


def read_values(path: str) -> list[Written]:
    """What a TOML file says, with the types that it gives; raises ConfigError as `read_toml` does."""
    try:
        with open(path, encoding="utf-8") as file:
            content = file.read()
        tables = tomllib.loads(content)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    lines = _lines_of_keys(content)
    return [
        Written(name, value, f"{path}:{lines[name]}: " if name in lines else f"{path}: ")
        for name, value in _flatten(tables, "")
    ]


def read_environment(environment: Mapping[str, str]) -> list[Setting]:
    """The settings among environment variables."""
    return [
        Setting(variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", "."), value, f"{variable}: ")
        for variable, value in sorted(environment.items())
        if variable.startswith(ENVIRONMENT_PREFIX)
    ]


def read_arguments(arguments: Iterable[str]) -> list[Setting]:
    """The settings in ``KEY=VALUE`` texts; raises ConfigError where there is no ``=``."""
    settings = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals:
            raise ConfigError(f"--set {argument}: it must be KEY=VALUE")
        settings.append(Setting(name.strip(), value.strip(), "--set: "))
    return settings


def _flatten(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _text(name: str, value: Any, where: str) -> str:
    """A TOML value as it would be written in an argument."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float() | str():
            return str(value)
        case list() if all(isinstance(item, str) for item in value):
            return ",".join(value)
    raise ConfigError(f"{where}{name}: it must be a text, a number, true, false, or an array of texts")


def _lines_of_keys(content: str) -> dict[str, int]:
    """The line, counted from 1, on which each key stands."""
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(content.splitlines(), 1):
        if found := _TABLE.match(line):
            table = _bare(found[1]) + "."
        elif found := _KEY.match(line):
            lines.setdefault(table + _bare(found[1]), number)
    return lines


def _bare(name: str) -> str:
    return re.sub(r"\s", "", name)

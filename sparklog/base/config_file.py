"""Reads a broker's configuration from a TOML file, the environment and ``KEY=VALUE`` arguments; later ones win.

    [log]                                    a TOML key is Kafka's key, dots included,
    segment.bytes = 1_073_741_824            so tables are optional: log.segment.bytes = …
    dirs = ["/data/a", "/data/b"]            a list is an array, or a text with commas
    "max.connections.per.ip" = 100           quoted if a prefix is itself a key, as max.connections is

    SPARKLOG_CONFIG_LOG_SEGMENT_BYTES        environment: capitals, with underscores for dots

Every key and value is checked, and errors name file and line. Python's TOML reader gives no line numbers, so this
module reads the file a second time. A line number may be missing in a file with multi-line strings or arrays of tables,
which no key needs.
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
    """Return the configuration from all three sources. Raises ConfigError, with the place, for anything invalid."""
    in_file = read_toml(path) if path else []
    return parse_broker_config([*in_file, *read_environment(environment), *read_arguments(arguments)])


def given_keys(path: str | None, environment: Mapping[str, str], arguments: Iterable[str]) -> set[str]:
    """Return the names of all keys that any of the three sources sets. Raises ConfigError as the readers do."""
    in_file = read_toml(path) if path else []
    return {setting.name for setting in [*in_file, *read_environment(environment), *read_arguments(arguments)]}


class TomlValue(NamedTuple):
    """A value in a TOML file."""

    name: str
    """The key's full name: its tables' names and its own, joined by dots."""
    value: Any
    where: str
    """Prefix of error messages: FILE:LINE, or FILE if the line is unknown."""


def read_toml(path: str) -> list[Setting]:
    """Return the settings in a TOML file. Raises ConfigError if the file or the type of a value is invalid."""
    return [Setting(name, _value_as_text(name, value, where), where) for name, value, where in read_values(path)]


def read_values(path: str) -> list[TomlValue]:
    """Return the values in a TOML file, with their TOML types. Raises ConfigError if it is unreadable or not TOML."""
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
        TomlValue(name, value, f"{path}:{lines[name]}: " if name in lines else f"{path}: ")
        for name, value in _flatten(tables, "")
    ]


def read_environment(environment: Mapping[str, str]) -> list[Setting]:
    """Return the settings among environment variables."""
    return [
        Setting(variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", "."), value, f"{variable}: ")
        for variable, value in sorted(environment.items())
        if variable.startswith(ENVIRONMENT_PREFIX)
    ]


def read_arguments(arguments: Iterable[str]) -> list[Setting]:
    """Return the settings in ``KEY=VALUE`` texts. Raises ConfigError for a text without ``=``."""
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


def _value_as_text(name: str, value: Any, where: str) -> str:
    """Return a TOML value as text for `Key.parse`."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float() | str():
            return str(value)
        case list() if all(isinstance(item, str) for item in value):
            return ",".join(value)
    raise ConfigError(f"{where}{name}: it must be a text, a number, true, false, or an array of texts")


def _lines_of_keys(content: str) -> dict[str, int]:
    """Return the line number of each key, counted from 1."""
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(content.splitlines(), 1):
        if found := _TABLE.match(line):
            table = _unquoted(found[1]) + "."
        elif found := _KEY.match(line):
            lines.setdefault(table + _unquoted(found[1]), number)
    return lines


def _unquoted(name: str) -> str:
    return re.sub(r"\s", "", name)

"""`conf/broker.toml`, written from the configuration keys: ``python -m sparklog.base.config_doc > conf/broker.toml``.

The file has every key, commented out, with its meaning, allowed values and default. Users change the keys that should
differ.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from typing import Any

from sparklog.base.config import BROKER_KEYS
from sparklog.base.config_keys import Key
from sparklog.base.topic_config import BROKER_DEFAULTS_OF_TOPICS

WIDTH = 100
_HEAD = """\
# The configuration of a sparklog broker: every key, with its default. Remove the '#' before a key
# to change it, and start the broker with
#     sparklog up --config broker.toml
# The same keys can be given in the environment (SPARKLOG_CONFIG_LOG_SEGMENT_BYTES=…) and, strongest
# of all, as arguments (--set log.segment.bytes=…).
"""


def broker_toml() -> str:
    """Return the content of the whole file."""
    return "\n".join([_HEAD, *_section("The broker", BROKER_KEYS), *_section("Defaults of topics", _defaults())])


def _defaults() -> dict[str, Key]:
    return dict(sorted(BROKER_DEFAULTS_OF_TOPICS.items()))


def _section(title: str, keys: dict[str, Key]) -> Iterator[str]:
    yield f"# ---- {title} " + "-" * (WIDTH - len(title) - 8) + "\n"
    for name, key in keys.items():
        note = f"{key.doc} Allowed: {key.bound.text}."
        if name not in BROKER_KEYS and name != key.name:
            note += f" A topic's own key: {key.name}."
        comment = textwrap.fill(note, WIDTH, initial_indent="# ", subsequent_indent="# ")
        yield f"{comment}\n#{_toml_key(name)} = {toml_value(key.default)}\n"


def _toml_key(name: str) -> str:
    """Quote the name if a prefix of it is a key too: TOML would take that prefix for a table."""
    return f'"{name}"' if any(name.startswith(f"{other}.") for other in BROKER_KEYS) else name


def toml_value(value: Any) -> str:
    """Return a value in TOML's notation."""
    match value:
        case bool():
            return "true" if value else "false"
        case tuple():
            return "[" + ", ".join(toml_value(item) for item in value) + "]"
        case str():
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)


if __name__ == "__main__":
    sys.stdout.write(broker_toml())

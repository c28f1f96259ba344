"""Reference of the configuration keys of brokers, topics and the job server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sparklog.base.config import BROKER_KEYS
from sparklog.base.config_keys import MAX_INT, MAX_LONG, Key, render
from sparklog.base.topic_config import TOPIC_KEYS
from sparklog.docs.markdown import code, line, page, table
from sparklog.jobs.schedule_config import SCHEDULE_KEYS, SERVER_KEYS

_INTRODUCTION = """\
Keys, types and defaults are Apache Kafka's where Kafka has the key. A broker takes its keys from a TOML file
(`sparklog up --config FILE`), from the environment (`SPARKLOG_CONFIG_LOG_SEGMENT_BYTES` is `log.segment.bytes`)
and from `--set KEY=VALUE`. Each overrides the one before. `conf/broker.toml` is a file with all keys and their
defaults."""
_BROKERS = """\
The update mode says when a key may change. read-only: at the start of the broker. per-broker: while it runs, for
one broker. cluster-wide: while they run, for all brokers at once, or for one. `kafka-configs.sh --entity-type brokers`
and the admin clients change keys; what they set overrides the file, and outlives restarts."""
_TOPICS = """\
## Topics

`sparklog topics create NAME --config KEY=VALUE` and `sparklog topics alter` set these keys. The default of a
topic is the value of the broker's key, which has a name of its own. Those keys of the broker are cluster-wide:
topics without a value of their own follow a change at once."""
_JOBS = """\
## Job server

`sparklog jobs serve --config FILE` reads these keys at the top of the file. `conf/jobs.toml` is a file with all
of them, and with each job's options."""
_SCHEDULES = """\
## Schedules

These keys, and the options of the job, are in a section `[schedule.NAME]` of that file."""


def configuration_page() -> str:
    """Return the whole page."""
    titles = ("key", "type", "default", "meaning")
    of_brokers = ("key", "type", "default", "update mode", "meaning")
    brokers = ((*_cells(key)[:3], key.update_mode, _cells(key)[3]) for key in BROKER_KEYS.values())
    topics = ((*_cells(key)[:3], code(key.broker_key or ""), _cells(key)[3]) for key in TOPIC_KEYS.values())
    return page(
        "Configuration keys",
        _INTRODUCTION,
        [
            f"## Brokers\n\n{_BROKERS}\n\n{table(of_brokers, brokers)}",
            f"{_TOPICS}\n\n{table(('key', 'type', 'default', 'key of the broker', 'meaning'), topics)}",
            f"{_JOBS}\n\n{table(titles, _rows(SERVER_KEYS.values()))}",
            f"{_SCHEDULES}\n\n{table(titles, _rows(SCHEDULE_KEYS.values()))}",
        ],
    )


def _rows(keys: Iterable[Key]) -> Iterable[tuple[str, ...]]:
    return (_cells(key) for key in keys)


def _cells(key: Key) -> tuple[str, ...]:
    meaning = line(f"{key.doc} Allowed: {key.bound.text}.")
    return code(key.name), key.bound.type.lower(), default_of(key.default), meaning


def default_of(value: Any) -> str:
    """Return a default as a cell; the largest numbers are shown as "no limit"."""
    if value in (MAX_INT, MAX_LONG) and not isinstance(value, bool):
        return "no limit"
    return "" if value is None else code(render(value))

"""Declaration of configuration keys: Kafka's name, type, default, bounds and documentation in one place.

A key is a field of a frozen dataclass, declared by `key`. Its Kafka name is the field's name with dots for underscores
(`log_segment_bytes` is ``log.segment.bytes``). Values are parsed from text once; later code gets checked, typed values.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sparklog.base.errors import ConfigError

JSON_LOGS, TEXT_LOGS = "json", "text"
MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
MINUTE_MS = 60_000
READ_ONLY, PER_BROKER, CLUSTER_WIDE = "read-only", "per-broker", "cluster-wide"
"""Update modes of a broker's key: at its start only, while it runs, or also for all brokers at once."""
DAY_MS = 24 * 60 * MINUTE_MS


class Bound(NamedTuple):
    """The allowed values of a key: `parse` reads one from text, `text` describes them."""

    parse: Callable[[str], Any]
    text: str
    type: str = "STRING"
    """The type as Kafka's tools name it: BOOLEAN, STRING, INT, LONG, DOUBLE, LIST or PASSWORD."""


def integer(low: int, high: int = MAX_LONG) -> Bound:
    """Return the bound of a whole number from `low` to `high`."""

    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError
        return value

    return Bound(parse, f"a whole number from {low} to {high}", "INT" if high <= MAX_INT else "LONG")


def level(low: int, high: int) -> Bound:
    """Return the bound of a codec's level: -1, which is the codec's default, or a whole number from `low` to `high`."""
    of_levels = integer(low, high)
    return Bound(lambda text: -1 if text.strip() == "-1" else of_levels.parse(text), f"-1, or {of_levels.text}", "INT")


def real(low: float, high: float) -> Bound:
    """Return the bound of a number from `low` to `high`."""

    def parse(text: str) -> float:
        value = float(text)
        if not low <= value <= high:
            raise ValueError
        return value

    return Bound(parse, f"a number from {low} to {high}", "DOUBLE")


def one_of(*allowed: str) -> Bound:
    """Return the bound of one of the `allowed` words; with "" among them, the text may be empty."""

    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError
        return text

    if "" in allowed:
        return Bound(parse, "empty, or " + " or ".join(filter(None, allowed)))
    return Bound(parse, "one of " + ", ".join(allowed))


def some_of(*allowed: str) -> Bound:
    """Return the bound of one or more of the `allowed` words, separated by commas; the value is a tuple."""

    def parse(text: str) -> tuple[str, ...]:
        words = tuple(word.strip() for word in text.split(","))
        if not set(words) <= set(allowed):
            raise ValueError
        return words

    return Bound(parse, "one or more of " + ", ".join(allowed) + ", separated by commas", "LIST")


def words(least: int = 0) -> Bound:
    """Return the bound of texts separated by commas; the value is a tuple. least: 0, or 1 to require a text"""

    def parse(text: str) -> tuple[str, ...]:
        found = tuple(word.strip() for word in text.split(",") if word.strip())
        if len(found) < least:
            raise ValueError
        return found

    return Bound(parse, "one or more texts separated by commas" if least else "texts separated by commas", "LIST")


def host_counts() -> Bound:
    """Return the bound of HOST:COUNT, separated by commas; the value is a tuple of these texts."""

    def parse(text: str) -> tuple[str, ...]:
        found = tuple(word.strip() for word in text.split(",") if word.strip())
        for word in found:
            host, _, count = word.rpartition(":")
            if not (host and count.isascii() and count.isdigit()):
                raise ValueError
        return found

    return Bound(parse, "HOST:COUNT separated by commas", "LIST")


def replicas() -> Bound:
    """Return the bound of one topic's replicas, as PARTITION:BROKER separated by commas; ``*``: all; empty: none.

    The value is a tuple of these texts.
    """

    def parse(text: str) -> tuple[str, ...]:
        found = tuple(word.strip() for word in text.split(",") if word.strip())
        if found != ("*",):
            for word in found:
                partition, broker = word.split(":")
                if min(int(partition), int(broker)) < 0:
                    raise ValueError
        return found

    return Bound(parse, "*, or PARTITION:BROKER separated by commas", "LIST")


def principals() -> Bound:
    """Return the bound of principals as TYPE:NAME, separated by semicolons; the value is the text as it was."""

    def parse(text: str) -> str:
        for each in split_principals(text):
            kind, _, name = each.partition(":")
            if not (kind and name):
                raise ValueError
        return text

    return Bound(parse, "principals such as User:alice, separated by semicolons")


def split_principals(text: str) -> frozenset[str]:
    """Return the principals of a value of `principals`."""
    return frozenset(each.strip() for each in text.split(";") if each.strip())


def boolean() -> Bound:
    """Return the bound of true or false, in any case of letters."""

    def parse(text: str) -> bool:
        return {"true": True, "false": False}[text.strip().lower()]

    return Bound(parse, "true or false", "BOOLEAN")


def text() -> Bound:
    """Return the bound of any text."""
    return Bound(str, "any text")


def password() -> Bound:
    """Return the bound of any text, which is never shown."""
    return Bound(str, "any text", "PASSWORD")


def pem() -> Bound:
    """Return the bound of a key store's type: PEM, the only one; its text says how to convert others."""
    instead = (
        "PEM; make a PKCS12 store of a JKS one with: keytool -importkeystore -srckeystore store.jks "
        "-destkeystore store.p12 -deststoretype PKCS12; and a PEM file of that with: "
        "openssl pkcs12 -in store.p12 -noenc -out store.pem"
    )
    return Bound(one_of("PEM").parse, instead)


def log_format() -> Any:
    """Return the field of the key for the form of a server's log."""
    return key(
        TEXT_LOGS,
        one_of(TEXT_LOGS, JSON_LOGS),
        "The form of the server's log, on standard error: text, or json, with an object on each line.",
    )


def key(default: Any, bound: Bound, doc: str, *, broker_key: str | None = None, update_mode: str = READ_ONLY) -> Any:
    """Declare a configuration key as a dataclass field.

    broker_key: of a topic's key, the broker's key with its default. update_mode: of a broker's key, as in Kafka
    """
    metadata = {"bound": bound, "doc": doc, "broker_key": broker_key, "update_mode": update_mode}
    return field(default=default, metadata=metadata, repr=bound.type != "PASSWORD")


@dataclass(frozen=True, slots=True)
class Key:
    """One declared key, for tables, documentation and checks."""

    name: str
    field: str
    default: Any
    bound: Bound
    doc: str
    broker_key: str | None
    update_mode: str
    """READ_ONLY, PER_BROKER or CLUSTER_WIDE, for a broker's key. A topic's own key may change at any time."""

    def parse(self, raw: str, where: str = "") -> Any:
        """Return the typed value of `raw`. Raises ConfigError, with `where` and the allowed values, if invalid."""
        try:
            return self.bound.parse(raw)
        except (ValueError, KeyError):
            raise ConfigError(f"{where}{self.name} = {raw!r}: it must be {self.bound.text}") from None


def declared_keys(cls: type) -> dict[str, Key]:
    """Return the keys of a configuration class by Kafka name, in the order of its fields."""
    return {
        name: Key(name=name, field=item.name, default=item.default, **item.metadata)
        for item in dataclasses.fields(cls)
        if item.metadata and (name := item.name.replace("_", "."))
    }


def render(value: Any) -> str:
    """Return the text of a value as `Key.parse` reads it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def unknown_key(name: str, known: Iterable[str]) -> str:
    """Return the error text for the unknown key `name`, with the nearest known name."""
    return f"unknown key {name!r}" + (nearest(name, known) or "; docs/reference/configuration.md lists the keys")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of an error text that suggests the nearest known name; empty if none is near."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""

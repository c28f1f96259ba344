"""Avro schemas as typed values, parsed from their JSON (Avro 1.12).

    AvroPrimitive                      null, boolean, int, long, float, double, bytes, string
    AvroFixed, AvroEnum, AvroRecord    the named types
    AvroArray, AvroMap, AvroUnion

A name that is used again refers to the same value. A type that contains itself is refused: Spark has no type for it.
Known logical types become `AvroLogical` or `AvroDecimal`. As the specification demands, the parser ignores unknown
logical types and those that do not fit their type. `time-…` and `uuid` stay numbers and texts, as in Spark's
`from_avro`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import log10
from typing import Any, TypeVar

from sparklog.base.errors import SchemaError

MOST_DEPTH = 64
"""Levels of types within types."""

NO_DEFAULT = object()
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class AvroKind(StrEnum):
    """Avro's primitive types."""

    NULL = "null"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    BYTES = "bytes"
    STRING = "string"


class AvroLogical(StrEnum):
    """The logical type of a number. Spark has no type for `time-…`, but its unit matters for a promotion."""

    DATE = "date"
    TIME_MILLIS = "time-millis"
    TIME_MICROS = "time-micros"
    TIMESTAMP_MILLIS = "timestamp-millis"
    TIMESTAMP_MICROS = "timestamp-micros"
    LOCAL_TIMESTAMP_MILLIS = "local-timestamp-millis"
    LOCAL_TIMESTAMP_MICROS = "local-timestamp-micros"


_LOGICAL_OF: Mapping[AvroKind, frozenset[AvroLogical]] = {
    AvroKind.INT: frozenset({AvroLogical.DATE, AvroLogical.TIME_MILLIS}),
    AvroKind.LONG: frozenset(AvroLogical) - {AvroLogical.DATE, AvroLogical.TIME_MILLIS},
}


@dataclass(frozen=True, slots=True)
class AvroDecimal:
    """The number of digits of a decimal, and how many of them follow the point."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class AvroPrimitive:
    """A primitive type, with its logical type."""

    kind: AvroKind
    logical: AvroLogical | None = None
    decimal: AvroDecimal | None = None


@dataclass(frozen=True, slots=True)
class AvroFixed:
    """The type of `size` bytes. `name` is the full name, as in all named types."""

    name: str
    size: int
    aliases: tuple[str, ...] = ()
    decimal: AvroDecimal | None = None


@dataclass(frozen=True, slots=True)
class AvroEnum:
    """An enum. A reader takes `default` for an unknown symbol."""

    name: str
    symbols: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    default: str | None = None


@dataclass(frozen=True, slots=True)
class AvroArray:
    """A list of items."""

    items: AvroType


@dataclass(frozen=True, slots=True)
class AvroMap:
    """Values by string keys."""

    values: AvroType


@dataclass(frozen=True, slots=True)
class AvroUnion:
    """A value of one of the branches."""

    branches: tuple[AvroType, ...]


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of a record. `default` is JSON, or NO_DEFAULT."""

    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    default: Any = NO_DEFAULT


@dataclass(frozen=True, slots=True)
class AvroRecord:
    """A record. Its fields are in the order of their bytes."""

    name: str
    fields: tuple[AvroField, ...]
    aliases: tuple[str, ...] = ()


AvroNamed = AvroFixed | AvroEnum | AvroRecord
AvroType = AvroPrimitive | AvroArray | AvroMap | AvroUnion | AvroNamed
NamedType = TypeVar("NamedType", AvroFixed, AvroEnum, AvroRecord)


def parse_avro(text: str, references: Sequence[str] = ()) -> AvroType:
    """Return the schema in a JSON text, or in a bare name such as `string`.

    references: schemas whose named types the text uses, each after its own references
    Raises SchemaError if a schema is invalid, recursive, or has no type in Spark.
    """
    parser = _SchemaParser()
    for each in references:
        parser.parse(_json(each), "", "reference", 0)
    return parser.parse(_json(text), "", "schema", 0)


def _json(text: str) -> Any:
    if text.strip() in set(AvroKind):
        return text.strip()
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as wrong:
        raise SchemaError(f"an Avro schema must be JSON: {wrong}; it begins with {text[:60]!r}") from None


def describe(of: AvroType) -> str:  # noqa: PLR0911 - a case for each type
    """Return the type in words, for messages."""
    match of:
        case AvroPrimitive(kind, logical, decimal):
            if decimal:
                return f"decimal({decimal.precision}, {decimal.scale}) of bytes"
            return logical.value if logical else kind.value
        case AvroFixed(name, size, _, decimal):
            return (
                f"decimal({decimal.precision}, {decimal.scale}) of fixed {name}" if decimal else f"fixed {name}({size})"
            )
        case AvroUnion(branches):
            return f"union of {', '.join(map(describe, branches))}" if branches else "empty union"
        case AvroEnum(name):
            return f"enum {name}"
        case AvroRecord(name):
            return f"record {name}"
        case AvroArray(items):
            return f"array of {describe(items)}"
        case AvroMap(values):
            return f"map of {describe(values)}"


class _SchemaParser:
    """Parses types. Holds the named types so far, and the names whose types are being parsed."""

    def __init__(self) -> None:
        self._named: dict[str, AvroNamed] = {}
        self._open: set[str] = set()

    def parse(self, node: Any, namespace: str, path: str, depth: int) -> AvroType:  # noqa: PLR0911 - as above
        if depth > MOST_DEPTH:
            raise SchemaError(f"{path}: types are nested more than {MOST_DEPTH} levels deep")
        if isinstance(node, str):
            return self._by_name(node, namespace, path)
        if isinstance(node, list):
            return self._union(node, namespace, path, depth)
        if not isinstance(node, dict) or "type" not in node:
            raise SchemaError(f"{path}: a type is a name, a list, or an object with `type`, not {_short(node)}")
        match node["type"]:
            case "array":
                return AvroArray(self._part(node, "items", namespace, path, depth))
            case "map":
                return AvroMap(self._part(node, "values", namespace, path, depth))
            case "record" | "error":
                return self._record(node, namespace, path, depth)
            case "enum":
                return self._enum(node, namespace, path)
            case "fixed":
                return self._fixed(node, namespace, path)
            case str(kind) if kind in set(AvroKind):
                return _simple(AvroKind(kind), node)
            case other:
                return self.parse(other, namespace, path, depth + 1)

    def _part(self, node: dict[str, Any], key: str, namespace: str, path: str, depth: int) -> AvroType:
        if key not in node:
            raise SchemaError(f"{path}: the {node['type']} needs `{key}`")
        return self.parse(node[key], namespace, f"{path}.{key}", depth + 1)

    def _by_name(self, name: str, namespace: str, path: str) -> AvroType:
        if name in set(AvroKind):
            return AvroPrimitive(AvroKind(name))
        candidates = (name,) if "." in name or not namespace else (f"{namespace}.{name}", name)
        for full in candidates:
            if full in self._open:
                raise SchemaError(
                    f"{path}: {full} contains itself, and Spark has no type for that; read the topic as `raw`, or let "
                    "producers write this part as text or bytes"
                )
            if full in self._named:
                return self._named[full]
        raise SchemaError(f"{path}: no type {name!r} is defined before this place")

    def _union(self, node: list[Any], namespace: str, path: str, depth: int) -> AvroUnion:
        if not node:
            raise SchemaError(f"{path}: a union needs at least one type")
        branches = tuple(
            self.parse(each, namespace, f"{path}[{position}]", depth + 1) for position, each in enumerate(node)
        )
        seen = set()
        for position, branch in enumerate(branches):
            if isinstance(branch, AvroUnion):
                raise SchemaError(f"{path}[{position}]: a union must not contain a union")
            identity = _identity(branch)
            if identity in seen:
                raise SchemaError(f"{path}[{position}]: the union has a second {identity}")
            seen.add(identity)
        return AvroUnion(branches)

    def _record(self, node: dict[str, Any], namespace: str, path: str, depth: int) -> AvroRecord:
        full, inner, aliases = self._names(node, namespace, path)
        if not isinstance(node.get("fields"), list):
            raise SchemaError(f"{path}: record {full} needs a list of `fields`")
        self._open.add(full)
        fields = tuple(self._field(each, inner, path, depth) for each in node["fields"])
        self._open.remove(full)
        names = [field.name for field in fields]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SchemaError(f"{path}: record {full} has two fields {twice!r}")
        return self._define(AvroRecord(full, fields, aliases))

    def _field(self, node: Any, namespace: str, path: str, depth: int) -> AvroField:
        if not isinstance(node, dict) or "type" not in node or not _is_name(node.get("name")):
            raise SchemaError(f"{path}: a field is an object with a valid `name` and a `type`, not {_short(node)}")
        name = node["name"]
        of = self.parse(node["type"], namespace, f"{path}.{name}", depth + 1)
        return AvroField(name, of, _texts(node, "aliases", path), node.get("default", NO_DEFAULT))

    def _enum(self, node: dict[str, Any], namespace: str, path: str) -> AvroEnum:
        full, _, aliases = self._names(node, namespace, path)
        symbols = _texts(node, "symbols", path)
        default = node.get("default")
        if not symbols or len(set(symbols)) < len(symbols) or not all(map(_is_name, symbols)):
            raise SchemaError(f"{path}: enum {full} needs a list of different `symbols`")
        if default is not None and default not in symbols:
            raise SchemaError(f"{path}: the default {_short(default)} of enum {full} is none of its symbols")
        return self._define(AvroEnum(full, symbols, aliases, default))

    def _fixed(self, node: dict[str, Any], namespace: str, path: str) -> AvroFixed:
        full, _, aliases = self._names(node, namespace, path)
        size = node.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**31:
            raise SchemaError(f"{path}: fixed {full} needs a `size` in bytes, not {_short(size)}")
        return self._define(AvroFixed(full, size, aliases, _decimal(node, size)))

    def _names(self, node: dict[str, Any], namespace: str, path: str) -> tuple[str, str, tuple[str, ...]]:
        """Return the full name, its namespace, and the full names of the aliases."""
        name, given = node.get("name"), node.get("namespace", namespace)
        if not isinstance(name, str) or not isinstance(given, str) or not all(map(_is_name, name.split("."))):
            raise SchemaError(f"{path}: {node['type']} needs a valid `name`, not {_short(name)}")
        full = name if "." in name or not given else f"{given}.{name}"
        if full in self._named or full in self._open:
            raise SchemaError(f"{path}: {full} is defined twice")
        inner = full.rpartition(".")[0]
        aliases = _texts(node, "aliases", path)
        return full, inner, tuple(each if "." in each or not inner else f"{inner}.{each}" for each in aliases)

    def _define(self, of: NamedType) -> NamedType:
        self._named[of.name] = of
        return of


def _simple(kind: AvroKind, node: dict[str, Any]) -> AvroPrimitive:
    if kind is AvroKind.BYTES:
        return AvroPrimitive(kind, None, _decimal(node, None))
    known = _LOGICAL_OF.get(kind, frozenset())
    return AvroPrimitive(kind, next((each for each in known if each == node.get("logicalType")), None))


def _decimal(node: dict[str, Any], size: int | None) -> AvroDecimal | None:
    """Return the decimal in the node of bytes, or of `size` bytes; None if there is none, or it is invalid."""
    precision, scale = node.get("precision"), node.get("scale", 0)
    if node.get("logicalType") != "decimal" or type(precision) is not int or type(scale) is not int:
        return None
    if precision < 1 or not 0 <= scale <= precision:
        return None
    if size is not None and precision > (8 * size - 1) * log10(2):
        return None
    return AvroDecimal(precision, scale)


def _identity(of: AvroType) -> str:
    """Return the text that must be unique among the types of a union: the full name, or the name of the type."""
    match of:
        case AvroPrimitive(kind):
            return kind.value
        case AvroFixed() | AvroEnum() | AvroRecord():
            return of.name
        case AvroArray():
            return "array"
        case AvroMap():
            return "map"
        case AvroUnion():
            return "union"


def _texts(node: dict[str, Any], key: str, path: str) -> tuple[str, ...]:
    given = node.get(key, [])
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise SchemaError(f"{path}: `{key}` must be a list of texts, not {_short(given)}")
    return tuple(given)


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _short(node: Any) -> str:
    text = json.dumps(node, default=repr)
    return text if len(text) <= 60 else f"{text[:60]}…"

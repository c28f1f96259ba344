"""Writers of Kafka's messages: functions generated from the classes of `kio`, as the methods of dataclasses are.

kio's own writer calls several functions for each field. A generated writer has the statements for all fields in one
body, and packs adjacent fixed fields together:

    add(pack(m.throttle_time // ms))                                # >i
    items = m.topics
    add(varint(len(items) + 1))
    for item in items:
        ...

Both write the same bytes.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from sparklog.server.kafka import packing

_FIXED = {
    "bool": ("?", "{}"),
    "int8": ("b", "{}"),
    "int16": ("h", "{}"),
    "int32": ("i", "{}"),
    "int64": ("q", "{}"),
    "uint8": ("B", "{}"),
    "uint16": ("H", "{}"),
    "uint32": ("I", "{}"),
    "uint64": ("Q", "{}"),
    "float64": ("d", "{}"),
    "error_code": ("h", "{}.value"),
    "timedelta_i32": ("i", "{} // ms"),
    "timedelta_i64": ("q", "{} // ms"),
    "uuid": ("16s", "({0}.bytes if {0} is not None else no_id)"),
}
"""Format and value expression of fixed-size fields, by kio's name of their type."""
_GLOBALS = {
    "ms": timedelta(milliseconds=1),
    "epoch": datetime(1970, 1, 1, tzinfo=UTC),
    "no_id": bytes(16),
    "short": tuple(packing.varint(value) for value in range(128)),
    "varint": packing.varint,
    "int16": struct.Struct(">h").pack,
    "int32": struct.Struct(">i").pack,
    "pack_many": struct.pack,
}


@cache
def writer_of(cls: Any) -> Callable[[Any], bytes]:
    """Return the function that writes the messages of this class of kio."""
    source = _WriterSource()
    source.structure(cls, "m")
    return source.function()


class _WriterSource:
    """The generated source of one function."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._indent = " "
        self._names: dict[str, Any] = dict(_GLOBALS)
        self._variables = 0
        self._format = ""
        self._values: list[str] = []
        """The fixed fields that are packed next."""

    def function(self) -> Callable[[Any], bytes]:
        self._pack_fixed()
        lines = ["def write(m):", " parts = []", " add = parts.append", *self._lines, ' return b"".join(parts)']
        exec("\n".join(lines), self._names)  # as dataclasses do; all names are from kio
        write: Callable[[Any], bytes] = self._names["write"]
        return write

    def structure(self, cls: Any, value: str) -> None:
        """Write all fields of a structure, then its tagged fields if it can have some."""
        types = get_type_hints(cls)
        tagged = {field.metadata["tag"]: field for field in dataclasses.fields(cls) if "tag" in field.metadata}
        for field in dataclasses.fields(cls):
            if "tag" not in field.metadata:
                self._field(field, types[field.name], f"{value}.{field.name}", is_flexible=cls.__flexible__)
        if tagged:
            self._tagged([(tag, tagged[tag], types[tagged[tag].name]) for tag in sorted(tagged)], value)
        elif cls.__flexible__:
            self._fixed("x")

    # Fixed fields are collected; each other field is a line

    def _fixed(self, layout: str, *values: str) -> None:
        self._format += layout
        self._values += values

    def _pack_fixed(self) -> None:
        if self._format:
            pack = self._name(struct.Struct(f">{self._format}").pack)
            line, self._format, self._values = f"add({pack}({', '.join(self._values)}))", "", []
            self._lines.append(self._indent + line)

    def _line(self, line: str) -> None:
        self._pack_fixed()
        self._lines.append(self._indent + line)

    def _block(self, line: str, write: Callable[[], None]) -> None:
        self._line(line)
        self._indent += " "
        write()
        self._pack_fixed()
        self._indent = self._indent[:-1]

    def _variable(self) -> str:
        self._variables += 1
        return f"v{self._variables}"

    def _name(self, value: Any) -> str:
        """Return the name of this value in the function."""
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name

    # Fields

    def _field(self, field: Any, annotation: Any, value: str, *, is_flexible: bool, is_tagged: bool = False) -> None:
        kind = field.metadata.get("kafka_type")
        is_null_allowed = not is_tagged and NoneType in get_args(annotation)
        plain = without_none(annotation)
        if get_origin(plain) is tuple:
            self._array(kind, without_none(get_args(plain)[0]), value, is_flexible=is_flexible)
        elif dataclasses.is_dataclass(plain):
            self._nested(plain, value, is_null_allowed=is_null_allowed)
        else:
            self._primitive(kind, value, is_flexible=is_flexible, is_null_allowed=is_null_allowed)

    def _primitive(self, kind: Any, value: str, *, is_flexible: bool, is_null_allowed: bool) -> None:
        if kind in _FIXED:
            layout, expression = _FIXED[kind]
            self._fixed(layout, expression.format(value))
        elif kind == "datetime_i64":
            time = f"({value} - epoch) // ms"
            self._fixed("q", f"(-1 if {value} is None else {time})" if is_null_allowed else time)
        elif kind in ("string", "bytes", "records"):
            self._sized(value, is_text=kind == "string", is_flexible=is_flexible, is_null_allowed=is_null_allowed)
        else:
            raise NotImplementedError(f"a field of type {kind}")

    def _sized(self, value: str, *, is_text: bool, is_flexible: bool, is_null_allowed: bool) -> None:
        data = self._variable()
        self._line(f"{data} = {value}")

        def write() -> None:
            if is_text:
                self._line(f"{data} = {data}.encode()")
            self._length(data, "int16" if is_text else "int32", is_flexible=is_flexible)
            self._line(f"add({data})")

        if not is_null_allowed:
            write()
            return
        null = 'b"\\0"' if is_flexible else f"{'int16' if is_text else 'int32'}(-1)"
        self._block(f"if {data} is None:", lambda: self._line(f"add({null})"))
        self._block("else:", write)

    def _length(self, data: str, fixed: str, *, is_flexible: bool) -> None:
        if is_flexible:
            self._line(f"n = len({data}) + 1")
            self._line("add(short[n] if n < 128 else varint(n))")
        else:
            self._line(f"add({fixed}(len({data})))")

    def _array(self, kind: Any, element: Any, value: str, *, is_flexible: bool) -> None:
        items, item = self._variable(), self._variable()
        self._line(f"{items} = {value}")

        def write() -> None:
            self._length(items, "int32", is_flexible=is_flexible)
            if dataclasses.is_dataclass(element):
                self._block(f"for {item} in {items}:", lambda: self.structure(element, item))
            elif _FIXED.get(kind, ("", ""))[1] == "{}":
                self._line(f'add(pack_many(f">{{len({items})}}{_FIXED[kind][0]}", *{items}))')
            else:
                self._block(
                    f"for {item} in {items}:",
                    lambda: self._primitive(kind, item, is_flexible=is_flexible, is_null_allowed=False),
                )

        null = 'b"\\0"' if is_flexible else "int32(-1)"
        self._block(f"if {items} is None:", lambda: self._line(f"add({null})"))
        self._block("else:", write)

    def _nested(self, cls: Any, value: str, *, is_null_allowed: bool) -> None:
        nested = self._variable()
        self._line(f"{nested} = {value}")
        if not is_null_allowed:
            self.structure(cls, nested)
            return

        def write() -> None:
            self._fixed("b", "1")
            self.structure(cls, nested)

        self._block(f"if {nested} is None:", lambda: self._fixed("b", "-1"))
        self._block("else:", write)

    def _tagged(self, tagged: list[tuple[int, Any, Any]], value: str) -> None:
        """Write the tagged fields that do not have their default (KIP-482)."""
        outer, found = self._variable(), self._variable()
        self._line(f"{outer}, {found} = add, []")
        for tag, field, annotation in tagged:
            self._block(
                f"if {value}.{field.name} != {self._name(field.default)}:",
                partial(self._tag, tag, field, annotation, value, found),
            )
        self._line(f"add = {outer}")
        self._line(f"add(varint(len({found})))")
        self._line(f'add(b"".join({found}))')

    def _tag(self, tag: int, field: Any, annotation: Any, value: str, found: str) -> None:
        inner = self._variable()
        self._line(f"{inner} = []")
        self._line(f"add = {inner}.append")
        self._field(field, annotation, f"{value}.{field.name}", is_flexible=True, is_tagged=True)
        self._line(f'{inner} = b"".join({inner})')
        self._line(f"{found}.append(varint({tag}) + varint(len({inner})) + {inner})")


def without_none(annotation: Any) -> Any:
    """Return the type of a nullable field without null; other types unchanged."""
    if get_origin(annotation) in (Union, UnionType):
        return next(each for each in get_args(annotation) if each is not NoneType)
    return annotation

"""Reference of gRPC: services and messages of proto/, each with the comment above it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

from sparklog.docs.markdown import code, line, page, paragraphs, table

PROTO = Path(__file__).parents[2] / "proto"
FILES = ("log", "groups", "admin", "maintenance", "transactions", "sinks", "records")
MESSAGE, ENUM, SERVICE, FIELD, VALUE, METHOD = 4, 5, 6, 2, 2, 2
"""Field numbers in descriptor.proto of the parts of a file, message, enum and service, for the paths of comments."""
_INTRODUCTION = """\
The services in `proto/sparklog/v1`. The broker also serves the standard health and reflection services. Brokers
talk to each other through one more service, `Replication`, which is not for clients. [Other
languages](../guides/other-languages.md) has examples.

A field that is *optional* may be absent, which its meaning explains. Other fields that are absent count as 0,
false or empty."""
_TITLES = {"records": "Shared messages"}


def grpc_page() -> str:
    """Return the whole page."""
    files = {Path(file.name).stem: file for file in _descriptors().file}
    return page("gRPC", _INTRODUCTION, (_file(name, files[name]) for name in FILES))


def _descriptors() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "descriptors")
        sources = [str(PROTO / "sparklog" / "v1" / f"{name}.proto") for name in FILES]
        arguments = [f"-I{PROTO}", f"--descriptor_set_out={out}", "--include_source_info", *sources]
        if protoc.main(["protoc", *arguments]) != 0:
            raise SystemExit(f"protoc cannot read {PROTO}")
        return FileDescriptorSet.FromString(out.read_bytes())


class _Comments:
    """The comments of a file, by the path of their elements."""

    def __init__(self, file: Any) -> None:
        self._texts = {tuple(each.path): each.leading_comments for each in file.source_code_info.location}

    def text(self, *path: int) -> str:
        lines = self._texts.get(path, "").splitlines()
        return "\n".join(each.removeprefix(" ") for each in lines)


def _file(name: str, file: Any) -> str:
    comments = _Comments(file)
    parts = [_service(file, number, comments) for number in range(len(file.service))]
    if name in _TITLES:
        parts.append(f"## {_TITLES[name]}")
    parts += [_message(message, comments, (MESSAGE, number)) for number, message in enumerate(file.message_type)]
    parts += [_enum(enum, comments, (ENUM, number)) for number, enum in enumerate(file.enum_type)]
    return "\n\n".join(parts)


def _service(file: Any, number: int, comments: _Comments) -> str:
    service = file.service[number]
    rows = (
        (
            code(method.name),
            _stream(method.client_streaming, method.input_type),
            _stream(method.server_streaming, method.output_type),
            line(comments.text(SERVICE, number, METHOD, index)),
        )
        for index, method in enumerate(service.method)
    )
    head = f"## Service {service.name}\n\n{paragraphs(comments.text(SERVICE, number))}"
    return f"{head}\n\n{table(('call', 'request', 'answer', 'meaning'), rows)}"


def _stream(is_stream: bool, type_name: str) -> str:
    return f"{'stream of ' if is_stream else ''}{_link(type_name)}"


def _link(type_name: str) -> str:
    name = type_name.rpartition(".")[2]
    return f"[{name}](#{name.lower()})"


def _message(message: Any, comments: _Comments, path: Sequence[int]) -> str:
    rows = [
        (
            code(field.name),
            _type(field, message),
            line(f"{_choice(field, message)}{comments.text(*path, FIELD, index)}"),
        )
        for index, field in enumerate(message.field)
    ]
    parts = [f"### {message.name}", paragraphs(comments.text(*path))]
    parts.append(table(("field", "type", "meaning"), rows) if rows else "It has no fields.")
    return "\n\n".join(filter(None, parts))


def _type(field: Any, message: Any) -> str:
    entry = next(
        (each for each in message.nested_type if field.type_name.endswith(f".{message.name}.{each.name}")), None
    )
    if entry is not None and entry.options.map_entry:
        return " to ".join(["map of " + _scalar(entry.field[0]), _scalar(entry.field[1])])
    name = _scalar(field)
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"list of {name}"
    return f"optional {name}" if field.proto3_optional else name


def _scalar(field: Any) -> str:
    if field.type_name:
        return _link(field.type_name)
    return str(FieldDescriptorProto.Type.Name(field.type)).removeprefix("TYPE_").lower()


def _choice(field: Any, message: Any) -> str:
    """Return the note of a field in a oneof; empty for other fields."""
    if not field.HasField("oneof_index") or field.proto3_optional:
        return ""
    return f"One of `{message.oneof_decl[field.oneof_index].name}`. "


def _enum(enum: Any, comments: _Comments, path: Sequence[int]) -> str:
    rows: Iterator[tuple[str, ...]] = (
        (code(value.name), str(value.number), line(comments.text(*path, VALUE, index)))
        for index, value in enumerate(enum.value)
    )
    parts = [f"### {enum.name}", paragraphs(comments.text(*path)), table(("value", "number", "meaning"), rows)]
    return "\n\n".join(filter(None, parts))

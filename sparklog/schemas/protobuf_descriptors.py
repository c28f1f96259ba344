"""Makes the messages of Protobuf schemas from descriptors, with Google's library.

A schema is a FileDescriptorSet, which `protoc --include_imports --descriptor_set_out` writes, or from a registry one
FileDescriptorProto and its imports. The files of Google's library need not be given. A missing import is no mistake
unless a field uses it: it may define custom options.
"""

from __future__ import annotations

import base64
import binascii
import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from sparklog.base.errors import SchemaError
from sparklog.schemas.protobuf import MOST_DEPTH, FieldKind, ProtobufEnum, ProtobufField, ProtobufMessage

BUILT_IN = ("any", "api", "duration", "descriptor", "empty", "field_mask", "source_context", "struct", "timestamp",
            "type", "wrappers")  # fmt: skip
"""Files of google/protobuf in Google's library."""

File = descriptor_pb2.FileDescriptorProto
_KINDS = {getattr(FieldDescriptor, f"TYPE_{kind.upper()}"): kind for kind in FieldKind}


class SchemaFiles:
    """The files of a schema: its imports, then the schema itself.

    Raises SchemaError if they do not fit each other.
    """

    def __init__(self, files: Iterable[Any]) -> None:
        by_name = {each.name: each for each in files}
        self._pool = DescriptorPool()
        self._main = next(reversed(by_name))
        self._by_name = by_name
        self._added: set[str] = set()
        for name in by_name:
            self._add(name, ())

    def message(self, name: str | None) -> ProtobufMessage:
        """Return a message by its full name, or by its name in the schema.

        name: None: the only message of the schema itself
        Raises SchemaError if there is none, or it is recursive or has groups.
        """
        known = sorted(_names(self._by_name[self._main].message_type, self._by_name[self._main].package))
        if name is None:
            top = [each.name for each in self._by_name[self._main].message_type]
            if len(top) != 1:
                raise SchemaError(f"the schema has {len(top)} messages: give the name of one; it has {_few(known)}")
            name = top[0]
        package = self._by_name[self._main].package
        for full in (name, f"{package}.{name}"):
            try:
                found = self._pool.FindMessageTypeByName(full)
            except KeyError:
                continue
            return _MessageBuilder().message(found, ())
        raise SchemaError(f"the schema has no message {name}; it has {_few(known)}")

    def text(self) -> str:
        """Return the schema itself in base64, as a registry takes it.

        Raises SchemaError if it imports files that do not come with Google's library: a registry would need them first.
        """
        main = self._by_name[self._main]
        others = [each for each in main.dependency if _built_in(each) is None]
        if others:
            raise SchemaError(
                f"the schema imports {_few(others)}: register it with its imports, and write it with valueSchemaId or "
                "use.latest.version"
            )
        return base64.b64encode(main.SerializeToString()).decode()

    def _add(self, name: str, within: tuple[str, ...]) -> None:
        """Add a file to the pool, after those that it imports."""
        if name in self._added:
            return
        if name in within:
            raise SchemaError(f"the Protobuf file {name} imports itself")
        given = self._by_name.get(name) or _built_in(name)
        if given is None:
            return
        file = File()
        file.CopyFrom(given)
        for each in file.dependency:
            self._add(each, (*within, name))
        present = [each for each in file.dependency if each in self._added]
        del file.dependency[:], file.public_dependency[:], file.weak_dependency[:]
        file.dependency.extend(present)
        file.public_dependency.extend(
            present.index(each) for each in (given.dependency[i] for i in given.public_dependency) if each in present
        )
        try:
            self._pool.Add(file)
            self._pool.FindFileByName(name)
        except (TypeError, KeyError) as wrong:
            missing = sorted(set(given.dependency) - set(present))
            hint = f"; it imports {', '.join(missing)}, which are not given" if missing else ""
            raise SchemaError(f"the Protobuf file {name} is not valid: {wrong}{hint}") from None
        self._added.add(name)


class _MessageBuilder:
    """Makes messages from descriptors, each once."""

    def __init__(self) -> None:
        self._messages: dict[str, ProtobufMessage] = {}
        self._enums: dict[str, ProtobufEnum] = {}

    def message(self, of: Descriptor, within: tuple[str, ...]) -> ProtobufMessage:
        if of.full_name in within:
            circle = " → ".join((*within[within.index(of.full_name) :], of.full_name))
            raise SchemaError(
                f"{of.full_name} contains itself ({circle}), and Spark has no type for that; read the topic as `raw`"
            )
        if len(within) >= MOST_DEPTH:
            raise SchemaError(f"{of.full_name}: messages are nested more than {MOST_DEPTH} levels deep")
        if of.full_name not in self._messages:
            fields = [self._field(each, (*within, of.full_name)) for each in of.fields]
            kept = tuple(each for each in fields if each.message is None or each.message.fields)
            self._messages[of.full_name] = ProtobufMessage(of.full_name, kept, of.GetOptions().map_entry)
        return self._messages[of.full_name]

    def _field(self, of: FieldDescriptor, within: tuple[str, ...]) -> ProtobufField:
        if of.type == FieldDescriptor.TYPE_GROUP:
            raise SchemaError(f"{of.full_name} is a group, which is not read; let it be a message")
        oneof = of.containing_oneof
        is_real = oneof is not None and not (len(oneof.fields) == 1 and oneof.name == f"_{of.name}")
        return ProtobufField(
            name=of.name,
            number=of.number,
            kind=_KINDS[of.type],
            repeated=of.is_repeated,
            presence=of.has_presence,
            required=of.is_required,
            oneof=oneof.name if is_real else None,
            default=self._default(of),
            message=self.message(of.message_type, within) if of.message_type is not None else None,
            enum=self._enum(of.enum_type) if of.enum_type is not None else None,
        )

    def _default(self, of: FieldDescriptor) -> Any:
        if not of.has_default_value:
            return None
        if of.enum_type is not None:
            return of.enum_type.values_by_number[of.default_value].name
        return of.default_value

    def _enum(self, of: EnumDescriptor) -> ProtobufEnum:
        if of.full_name not in self._enums:
            symbols: dict[int, str] = {}
            for each in of.values:
                symbols.setdefault(each.number, each.name)
            self._enums[of.full_name] = ProtobufEnum(of.full_name, tuple(symbols.items()), bool(of.is_closed))
        return self._enums[of.full_name]


def from_text(text: str) -> SchemaFiles:
    """Return the files of a FileDescriptorSet, given its path or its base64. Raises SchemaError."""
    try:
        return from_descriptor_set(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, SchemaError):
        pass  # the name of a file may be base64 too
    try:
        with open(text, "rb") as file:
            content = file.read()
    except (OSError, ValueError) as error:
        raise SchemaError(
            f"{text[:200]!r} is neither the file of a FileDescriptorSet, nor its base64: {error}"
        ) from None
    return from_descriptor_set(content)


def from_descriptor_set(content: bytes) -> SchemaFiles:
    """Return the files of a FileDescriptorSet, in which each file follows its imports. Raises SchemaError."""
    try:
        found = descriptor_pb2.FileDescriptorSet.FromString(content)
    except DecodeError:
        raise SchemaError("the schema is no FileDescriptorSet, such as `protoc --descriptor_set_out` writes") from None
    if not found.file:
        raise SchemaError("the schema is a FileDescriptorSet without files")
    return SchemaFiles(found.file)


def from_registry(text: str, references: Mapping[str, str]) -> SchemaFiles:
    """Return the files of a schema from a registry with `format=serialized`. Raises SchemaError.

    references: its imports, by the names in the import statements
    """
    files = [parse_file(each, name) for name, each in references.items()]
    main = parse_file(text)
    if main.name in references:
        main = parse_file(text, f"{main.name} itself")
    return SchemaFiles([*files, main])


def parse_file(text: str, name: str | None = None) -> Any:
    """Return the FileDescriptorProto in a text of base64. Raises SchemaError.

    name: the file's new name; None: it keeps its own
    """
    try:
        file = File.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError, ValueError):
        raise SchemaError(
            "the registry gives the text of a .proto file, and no descriptor: it does not know format=serialized; "
            f"the schema begins with {text[:60]!r}"
        ) from None
    if name is not None:
        file.MergeFrom(File(name=name))
    return file


def message_names(text: str) -> dict[tuple[int, ...], str]:
    """Return the full names of a schema's messages by their indexes.

    text: as of `from_registry`
    Raises SchemaError.
    """
    file = parse_file(text)
    return dict(_indexed(file.message_type, file.package, ()))


def _indexed(messages: Sequence[Any], within: str, path: tuple[int, ...]) -> Iterable[tuple[tuple[int, ...], str]]:
    for index, each in enumerate(messages):
        full = f"{within}.{each.name}" if within else each.name
        yield (*path, index), full
        yield from _indexed(each.nested_type, full, (*path, index))


def _names(messages: Sequence[Any], package: str) -> list[str]:
    return [name for _, name in _indexed(messages, package, ())]


def _built_in(name: str) -> Any:
    stem = name.removeprefix("google/protobuf/").removesuffix(".proto")
    if stem not in BUILT_IN or not name.startswith("google/protobuf/"):
        return None
    module = importlib.import_module(f"google.protobuf.{stem}_pb2")
    return File.FromString(module.DESCRIPTOR.serialized_pb)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (" …" if len(names) > 10 else "")

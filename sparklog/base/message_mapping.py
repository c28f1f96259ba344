"""Conversion between values and protobuf messages by the names of their fields.

For each pair of a value's type and a message's class, a plan converts each field. The plan is made once, from the
value's annotations and the message's descriptor:

    message                      value
    a field                      the field of the same name, with `is_` before it, or with the name in RENAMED
    topic, partition             one TopicPartition
    Error                        a KafkaError
    another message              a dataclass or a named tuple; a mapping if the message has one field
    repeated                     a sequence; if it is empty, None if the value may be None
    repeated messages            a sequence of values; a sequence of tuples, with the message's fields in order; or a
                                 mapping: the first field (or topic and partition) is the key, the others are the value
    map                          a mapping
    string, bytes                a UUID as text or as its 16 bytes; otherwise unchanged
    enum                         a member of an IntEnum, or the number
    a field with presence        if it is absent, the value's default, or None without a default

The caller passes other fields by name. Making the plan raises TypeError if a field of the message has no counterpart
and is not passed, or if a field of the value has no counterpart, no default, and is not passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from sparklog.base.errors import InvalidRequest, KafkaError, error_for
from sparklog.base.ids import TopicPartition

M = TypeVar("M")
V = TypeVar("V")
Message = Any
MessageClass = Any
Convert = Callable[[Any], Any]
Values = dict[str, Any]
RENAMED: Mapping[str, Mapping[str, str]] = {
    "AlterPartitionReassignmentsResponse": {"partitions": "errors"},
    "AlterReplicaLogDirsResponse": {"partitions": "errors"},
    "Broker": {"id": "broker_id"},
    "DeleteGroupsResponse": {"groups": "errors"},
    "FindCoordinatorRequest": {"group_ids": "keys"},  # Kafka's message has other kinds of keys too
    "ListPartitionReassignmentsResponse": {"partitions": "moving"},
    "OffsetCommitRequest": {"generation": "generation_or_epoch"},  # for both kinds of groups, named as in Kafka
    "OffsetCommitResponse": {"partitions": "errors"},
    "OffsetDeleteResponse": {"partitions": "errors"},
    "OffsetFetchResponse": {"partitions": "offsets"},
    "TxnOffsetCommitRequest": {"generation": "generation_or_epoch"},
}
"""Name of the message → field of the message → field of the value."""
_NOTHING: frozenset[str] = frozenset()


def to_message(value: Any, message_class: type[M], /, **given: Any) -> M:
    """Return the message for a value.

    given: fields of the message that are not derived from the value
    """
    value_type: Any = type(value)
    target: Any = message_class
    return message_class(**_writer(value_type, target, frozenset(given))(value), **given)


def to_value(message: Message, value_type: type[V], /, **given: Any) -> V:
    """Return the value for a message. Raises InvalidRequest if a topic id is invalid.

    given: fields of the value that are not derived from the message
    """
    message_class: MessageClass = type(message)
    target: Any = value_type
    return value_type(**_reader(message_class, target, frozenset(given))(message), **given)


def parse(message_class: MessageClass, data: bytes) -> Message:
    """Return the message in `data`, of any size. Raises InvalidRequest if the bytes are not a message."""
    try:
        return message_class.FromString(data)
    except DecodeError as error:
        raise InvalidRequest(str(error)) from None


def read_topic_id(text: str) -> UUID | None:
    """Return the topic id; None if the text is empty. Raises InvalidRequest if it is not an id."""
    try:
        return UUID(text) if text else None
    except ValueError:
        raise InvalidRequest(f"{text!r} is no topic id") from None


def read_topic_id_bytes(data: bytes) -> UUID:
    """Return the topic id; 16 zero bytes are an id like others. Raises InvalidRequest if there are not 16 bytes."""
    if len(data) != 16:
        raise InvalidRequest(f"a topic id has 16 bytes, not {len(data)}")
    return UUID(bytes=data)


def read_error(message: Any) -> KafkaError | None:
    """Return the error of a result with a field `error`; None if it is absent."""
    return error_for(message.error.code, message.error.message) if message.HasField("error") else None


def read_partitions(messages: Iterable[Any]) -> list[TopicPartition]:
    """Return the partitions that the fields `topic` and `partition` of each message name, in their order."""
    return [TopicPartition(message.topic, message.partition) for message in messages]


class _FieldType(NamedTuple):
    """A field's annotation, split into its type and whether it may be None."""

    type: Any
    may_be_none: bool

    @property
    def is_mapping(self) -> bool:
        return get_origin(self.type) is Mapping

    @property
    def arguments(self) -> tuple[_FieldType, ...]:
        return tuple(_field_type(each) for each in get_args(self.type))

    @property
    def make(self) -> Callable[[Any], Any]:
        return tuple if get_origin(self.type) is tuple else list


def _field_type(annotation: Any) -> _FieldType:
    if get_origin(annotation) in (Union, UnionType) and NoneType in get_args(annotation):
        return _FieldType(Union[tuple(each for each in get_args(annotation) if each is not NoneType)], True)  # noqa: UP007
    return _FieldType(annotation, False)


@cache
def _field_types(value_type: type) -> Mapping[str, _FieldType]:
    """Return the kind of each field by name."""
    return {name: _field_type(annotation) for name, annotation in get_type_hints(value_type).items()}


@cache
def _defaults(value_type: type) -> Values:
    if not issubclass(value_type, msgspec.Struct):
        return {}
    defaults = {}
    for field in msgspec.structs.fields(value_type):
        if field.default is not msgspec.NODEFAULT:
            defaults[field.name] = field.default
        elif field.default_factory is not msgspec.NODEFAULT:
            defaults[field.name] = field.default_factory()
    return defaults


def _name_of(field: FieldDescriptor, names: Any) -> str | None:
    """Return the one of a value's `names` that corresponds to a message's field; None if none does."""
    renamed = RENAMED.get(field.containing_type.name, {}).get(field.name, field.name)
    return next((name for name in (renamed, f"is_{renamed}") if name in names), None)


def _partition_name(value_type: type) -> str | None:
    """Return the value's field that holds `topic` and `partition` as a TopicPartition; None if there is none."""
    if "topic" in _field_types(value_type):
        return None
    return next((name for name, kind in _field_types(value_type).items() if kind.type is TopicPartition), None)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _has_presence(field: FieldDescriptor) -> bool:
    return bool(field.has_presence and not field.message_type)


def _key_and_rest(key: Any, message: Any) -> tuple[list[str], list[str]]:
    """Split the fields of a message that is an entry of a mapping into those of the key and the others."""
    names = [field.name for field in message.fields]
    length = 2 if key is TopicPartition else 1
    return names[:length], names[length:]


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


# From a value


@cache
def _writer(value_type: Any, message_class: MessageClass, without: frozenset[str]) -> Callable[[Any], Values]:
    """Return the function that makes the fields of a message from a value."""
    kinds, defaults, partition = _field_types(value_type), _defaults(value_type), _partition_name(value_type)
    attributes: dict[str, str] = {}
    converted: list[tuple[str, Convert]] = []
    for field in message_class.DESCRIPTOR.fields:
        if field.name in without:
            continue
        if partition and field.name in TopicPartition._fields:
            attributes[field.name] = f"{partition}.{field.name}"
            continue
        name = _name_of(field, {*kinds, *dir(value_type)})
        if name is None:
            raise TypeError(f"{value_type.__name__} has no {field.name} of {message_class.__name__}")
        attributes[field.name] = name
        if convert := _converter_to_message(kinds.get(name, _FieldType(Any, False)), field, defaults.get(name)):
            converted.append((field.name, convert))
    names, get = tuple(attributes), _getter(list(attributes.values()))

    def write(value: Any) -> Values:
        values = dict(zip(names, get(value)))  # noqa: B905 - both have the same length, and the check takes time
        for name, convert in converted:
            values[name] = convert(values[name])
        return values

    return write


def _converter_to_message(kind: _FieldType, field: FieldDescriptor, default: Any) -> Convert | None:
    """Return the conversion of a field, or None if it needs none. A value of None leaves the field absent."""
    if _has_presence(field) and default is not None:
        return lambda value: None if value == default else value
    convert = _value_converter_to_message(kind, field)
    return _keep_none(convert) if convert and kind.may_be_none else convert


def _keep_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _value_converter_to_message(kind: _FieldType, field: FieldDescriptor) -> Convert | None:
    if kind.type is UUID:
        return attrgetter("bytes") if field.type == FieldDescriptor.TYPE_BYTES else str
    if _is_map(field):
        inner = _converter_to_message(kind.arguments[1], field.message_type.fields_by_name["value"], None)
        return dict if inner is None else lambda values: {key: inner(value) for key, value in values.items()}
    if not field.message_type:
        return None
    message_class = GetMessageClass(field.message_type)
    if field.is_repeated and kind.is_mapping:
        return _entries_writer(kind, message_class)
    if field.is_repeated:
        return _messages_writer(kind.arguments[0], message_class)
    return _message_writer(kind, message_class)


def _messages_writer(kind: _FieldType, message_class: MessageClass) -> Convert:
    if get_origin(kind.type) is tuple:
        one = _message_writer(kind, message_class)
        return lambda values: [one(value) for value in values]
    write = _writer(kind.type, message_class, _NOTHING)
    return lambda values: [message_class(**write(value)) for value in values]


def _message_writer(kind: _FieldType, message_class: MessageClass) -> Convert:
    if kind.type is KafkaError:
        return lambda error: message_class(
            code=error.code, name=error.name, message=str(error), retriable=error.retriable
        )
    names = [field.name for field in message_class.DESCRIPTOR.fields]
    if kind.is_mapping:
        (name,) = names
        return lambda value: message_class(**{name: dict(value)})
    if get_origin(kind.type) is tuple:
        return lambda value: message_class(**dict(zip(names, value, strict=True)))
    write = _writer(kind.type, message_class, _NOTHING)
    return lambda value: message_class(**write(value))


def _entries_writer(kind: _FieldType, message_class: MessageClass) -> Convert:
    key, value = kind.arguments
    keys, rest = _key_and_rest(key.type, message_class.DESCRIPTOR)
    write = (
        _writer(value.type, message_class, frozenset(keys))
        if len(rest) > 1
        else _field_writer(value, rest[0], message_class)
    )
    if len(keys) == 1:
        return lambda values: [message_class(**{keys[0]: key}, **write(value)) for key, value in values.items()]
    return lambda values: [
        message_class(topic=name.topic, partition=name.partition, **write(value)) for name, value in values.items()
    ]


def _field_writer(kind: _FieldType, name: str, message_class: MessageClass) -> Callable[[Any], Values]:
    convert = _converter_to_message(kind, message_class.DESCRIPTOR.fields_by_name[name], None) or _unchanged
    return lambda value: {name: convert(value)}


def _unchanged(value: Any) -> Any:
    return value


# From a message


@cache
def _reader(message_class: MessageClass, value_type: Any, without: frozenset[str]) -> Callable[[Any], Values]:
    """Return the function that makes the fields of a value from a message."""
    kinds, defaults, partition = _field_types(value_type), _defaults(value_type), _partition_name(value_type)
    fields = {
        _name_of(field, kinds): field
        for field in message_class.DESCRIPTOR.fields
        if partition is None or field.name not in TopicPartition._fields
    }
    if None in fields and not without:
        raise TypeError(f"{value_type.__name__} has no {fields[None].name} of {message_class.__name__}")
    names: dict[str, str] = {}
    converted: list[tuple[str, Convert]] = []
    optional: list[tuple[str, str, Any]] = []
    for name, kind in kinds.items():
        if name in without or name == partition:
            continue
        field = fields.get(name)
        if field is None:
            if name not in defaults:
                raise TypeError(f"{message_class.__name__} has no {name} of {value_type.__name__}")
            continue
        names[name] = field.name
        if convert := _converter_from_message(kind, field):
            converted.append((name, convert))
        if _has_presence(field) or (field.message_type and not field.is_repeated and kind.may_be_none):
            optional.append((name, field.name, defaults.get(name)))
    get = _getter(list(names.values()))

    def read(message: Any) -> Values:
        values = dict(zip(names, get(message)))  # noqa: B905 - as in _writer
        for name, convert in converted:
            values[name] = convert(values[name])
        for name, field, default in optional:
            if not message.HasField(field):
                values[name] = default
        if partition is not None:
            values[partition] = TopicPartition(message.topic, message.partition)
        return values

    return read


def _converter_from_message(kind: _FieldType, field: FieldDescriptor) -> Convert | None:
    """Return the conversion of a field that is present, or None if it needs none."""
    if kind.type is UUID:
        return read_topic_id_bytes if field.type == FieldDescriptor.TYPE_BYTES else read_topic_id
    if _is_map(field):
        inner = _converter_from_message(kind.arguments[1], field.message_type.fields_by_name["value"])
        return dict if inner is None else lambda values: {key: inner(value) for key, value in values.items()}
    if field.enum_type and isinstance(kind.type, type) and issubclass(kind.type, IntEnum):
        return _enum_reader(kind.type, field.name)
    if field.is_repeated:
        convert = _sequence_converter_from_message(kind, field)
        return (lambda values: convert(values) or None) if kind.may_be_none else convert
    return _message_reader(kind, GetMessageClass(field.message_type)) if field.message_type else None


def _enum_reader(enum: type[IntEnum], name: str) -> Convert:
    def read(number: int) -> IntEnum:
        try:
            return enum(number)
        except ValueError:
            raise InvalidRequest(f"{number} is not a {name} that this broker knows") from None

    return read


def _sequence_converter_from_message(kind: _FieldType, field: FieldDescriptor) -> Convert:
    if not field.message_type:
        return kind.make
    message_class = GetMessageClass(field.message_type)
    if kind.is_mapping:
        return _entries_reader(kind, message_class)
    make, one = kind.make, _message_reader(kind.arguments[0], message_class)
    return lambda messages: make([one(message) for message in messages])


def _message_reader(kind: _FieldType, message_class: MessageClass) -> Convert:
    if kind.type is KafkaError:
        return lambda message: error_for(message.code, message.message)
    get = _getter([field.name for field in message_class.DESCRIPTOR.fields])
    if kind.is_mapping:
        return lambda message: dict(get(message)[0])
    if get_origin(kind.type) is tuple:
        return get
    if kind.type is TopicPartition:
        return lambda message: TopicPartition(message.topic, message.partition)
    value_type, read = kind.type, _reader(message_class, kind.type, _NOTHING)
    return lambda message: value_type(**read(message))


def _entries_reader(kind: _FieldType, message_class: MessageClass) -> Convert:
    key, value = kind.arguments
    keys, rest = _key_and_rest(key.type, message_class.DESCRIPTOR)
    read_key: Convert = attrgetter(keys[0])
    if key.type is TopicPartition:
        read_key = _message_reader(key, message_class)
    read_value = _entry_value_reader(value, rest, message_class)
    if value.type is KafkaError and not value.may_be_none:  # the mapping holds only entries with an error
        return lambda messages: {read_key(each): read_value(each) for each in messages if each.HasField("error")}
    return lambda messages: {read_key(each): read_value(each) for each in messages}


def _entry_value_reader(value: _FieldType, rest: list[str], message_class: MessageClass) -> Convert:
    """Return the function that reads the value of an entry of a mapping."""
    if value.type is KafkaError:
        return read_error
    if len(rest) > 1:
        value_type, names = value.type, tuple(_field_types(value.type))
        get = _getter(list(names))
        return lambda message: value_type(*get(message))
    convert, get_one = (
        _converter_from_message(value, message_class.DESCRIPTOR.fields_by_name[rest[0]]) or _unchanged,
        attrgetter(rest[0]),
    )
    return lambda message: convert(get_one(message))

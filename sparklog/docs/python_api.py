"""Reference of the Python client: public classes with their methods and options, and their errors."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ForwardRef

from sparklog import arrow, testing
from sparklog.base import errors
from sparklog.client import Admin, Consumer, Maintenance, Producer, aio
from sparklog.client.commits import OffsetAndMetadata
from sparklog.client.config import ClientConfig, ConsumerConfig, ProducerConfig
from sparklog.client.consumer.consumed import ConsumerRecord
from sparklog.client.interceptors import ConsumerInterceptor, Interceptor, ProducerRecord
from sparklog.client.listeners import RebalanceListener
from sparklog.client.maintenance.maintenance import Lease
from sparklog.client.offsets import ListedOffset
from sparklog.client.producer.delivery import (
    Delivery,
    OffsetRange,
    RecordMetadata,
    TableDelivery,
    TableMetadata,
    Unacknowledged,
)
from sparklog.docs.configuration import default_of
from sparklog.docs.markdown import code, line, page, paragraphs, table

CLIENTS: tuple[type, ...] = (Producer, Consumer, Admin, Maintenance)
OPTIONS = {
    "Options of every client": ClientConfig,
    "Options of producers": ProducerConfig,
    "Options of consumers": ConsumerConfig,
}
VALUES: tuple[type, ...] = (
    RecordMetadata,
    Delivery,
    TableDelivery,
    TableMetadata,
    OffsetRange,
    Unacknowledged,
    ConsumerRecord,
    OffsetAndMetadata,
    ListedOffset,
    Lease,
    ProducerRecord,
)
LISTENERS: tuple[type, ...] = (RebalanceListener, Interceptor, ConsumerInterceptor)
TESTING: tuple[Callable[..., Any] | type, ...] = (
    testing.start_broker,
    testing.start_cluster,
    testing.RunningBroker,
    testing.RunningCluster,
)
ARROW: tuple[Callable[..., Any], ...] = (
    arrow.read_table,
    arrow.record_batches,
    arrow.scan_polars,
    arrow.string_format,
    arrow.json_format,
    arrow.avro_format,
    arrow.protobuf_format,
    arrow.registry_format,
)
_INTRODUCTION = """\
`sparklog.client` has the classes for plain code. `sparklog.client.aio` has `AsyncProducer`, `AsyncConsumer`,
`AsyncAdmin` and `AsyncMaintenance` with the same methods as coroutines. [Python
client](../guides/python-client.md) shows how they are used."""
_ARROW = """\
`sparklog.arrow` reads topics from the files of a log directory: [tables without Spark](../guides/without-spark.md)
shows how it is used."""
_OF_CLASS = re.compile(r"As (Async\w+)\.(\w+)(?:[;,.] ?)?(.*)", re.DOTALL)


def python_page() -> str:
    """Return the whole page."""
    sections = [*(_class(cls) for cls in CLIENTS), *(_options(title, cls) for title, cls in OPTIONS.items())]
    sections += ["## Values", *(_value(cls) for cls in VALUES)]
    sections += ["## Listeners and interceptors", *(_class(cls, level=3) for cls in LISTENERS)]
    sections += ["## Tables without Spark", _ARROW, *(_function_or_class(part) for part in ARROW)]
    sections += ["## Testing", *(_function_or_class(part) for part in TESTING), _errors()]
    return page("Python API", _INTRODUCTION, sections)


def _class(cls: type, level: int = 2) -> str:
    methods = [_member(cls, name, level + 1) for name in vars(cls) if not name.startswith("_")]
    return "\n\n".join([f"{'#' * level} {cls.__name__}", paragraphs(cls.__doc__ or ""), *filter(None, methods)])


def _member(cls: type, name: str, level: int) -> str:
    found = inspect.getattr_static(cls, name)
    head = f"{'#' * level} {cls.__name__}.{name}"
    if isinstance(found, property):
        return f"{head}\n\n{_text(found.__doc__)}"
    if inspect.isfunction(found):
        return f"{head}\n\n```text\n{name}{signature(found)}\n```\n\n{_text(found.__doc__)}"
    return ""


def _text(doc: str | None) -> str:
    """Return a docstring as Markdown. "As AsyncX.method" stands for that method's docstring; text after it is added."""
    if not (as_other := _OF_CLASS.fullmatch(inspect.cleandoc(doc or ""))):
        return paragraphs(doc or "")
    cls, name, more = as_other.groups()
    text = paragraphs(getattr(getattr(aio, cls), name).__doc__ or "")
    return f"{text}\n\n{line(more[:1].upper() + more[1:])}" if more else text


class _AnnotationText:
    """An annotation whose repr is its text in the code."""

    def __init__(self, text: object) -> None:
        text = text.__forward_arg__ if isinstance(text, ForwardRef) else text
        self._text = text if isinstance(text, str) else inspect.formatannotation(text)

    def __repr__(self) -> str:
        return self._text


def signature(function: Callable[..., Any]) -> str:
    """Return the signature of a function or method, without `self`."""
    found = inspect.signature(function)
    parameters = [
        each if each.annotation is each.empty else each.replace(annotation=_AnnotationText(each.annotation))
        for name, each in found.parameters.items()
        if name != "self"
    ]
    result = found.return_annotation
    return str(found.replace(parameters=parameters, return_annotation=_AnnotationText(result) if result else result))


def _options(title: str, cls: type[ClientConfig]) -> str:
    inherited = {item.name for item in dataclasses.fields(ClientConfig)} if cls is not ClientConfig else set()
    rows = (
        (
            code(item.name),
            _default(item.default),
            line(f"{item.metadata['doc']} Allowed: {item.metadata['bound'].text}."),
        )
        for item in dataclasses.fields(cls)
        if item.name not in inherited
    )
    return f"## {title}\n\n{table(('option', 'default', 'meaning'), rows)}"


def _default(value: Any) -> str:
    if isinstance(value, tuple):
        return code(", ".join(str(getattr(item, "name", item)) for item in value))
    return default_of(value)


def _value(cls: type) -> str:
    fields: Iterable[str] = getattr(cls, "_fields", ()) or getattr(cls, "__struct_fields__", ())
    if dataclasses.is_dataclass(cls):
        fields = [item.name for item in dataclasses.fields(cls)]
    if not fields:
        return _class(cls, level=3)
    types = {name: _AnnotationText(cls.__annotations__[name]) for name in fields}
    rows = table(("field", "type"), ((code(name), code(str(types[name]))) for name in fields))
    return f"### {cls.__name__}\n\n{paragraphs(cls.__doc__ or '')}\n\n{rows}"


def _function_or_class(part: Callable[..., Any] | type) -> str:
    if inspect.isclass(part):
        return _class(part, level=3)
    return f"### {part.__name__}\n\n```text\n{part.__name__}{signature(part)}\n```\n\n{paragraphs(part.__doc__ or '')}"


def _errors() -> str:
    rows = (
        (code(cls.__name__), str(cls.code), code(cls.name), "yes" if issubclass(cls, errors.RetriableError) else "")
        for cls in _kafka_errors()
    )
    ours = ((code(cls.__name__), line(cls.__doc__ or "")) for cls in _client_errors())
    return "\n\n".join(
        [
            "## Errors",
            "All errors are in `sparklog.base.errors`, under `SparklogError`. These are raised in the client:",
            table(("class", "meaning"), ours),
            "These are Kafka's errors. Clients try those again that may succeed later.",
            table(("class", "code", "name", "may succeed later"), rows),
        ]
    )


def _kafka_errors() -> list[type[errors.KafkaError]]:
    found = {cls for cls in _subclasses(errors.KafkaError) if "code" in vars(cls)}
    return sorted(found, key=lambda cls: cls.code)


def _client_errors() -> list[type[errors.SparklogError]]:
    return sorted({errors.ConfigError, *_subclasses(errors.ClientError)}, key=lambda cls: cls.__name__)


def _subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    importlib.import_module("sparklog.client.aio")  # for errors outside of base/errors.py
    for each in cls.__subclasses__():
        yield each
        yield from _subclasses(each)

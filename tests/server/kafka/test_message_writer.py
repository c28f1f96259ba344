"""Generated writers of messages, compared with kio's."""

from __future__ import annotations

import dataclasses
import io
from datetime import timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import Records

from sparklog.server.kafka.apis import TRANSLATIONS
from sparklog.server.kafka.message_writer import writer_of

RESPONSES = [
    pytest.param(each.api.key, version, id=f"{each.api.name}-{version}")
    for each in TRANSLATIONS
    for version in range(each.api.versions[0], each.api.versions[1] + 1)
]
LONGEST = timedelta(days=106_751_990)
"""kio fails to read a time span of a day more than that."""


@cache
def messages(cls: Any) -> st.SearchStrategy[Any]:
    """Return messages with a value in every field, also in fields with a default."""
    types = get_type_hints(cls)
    return st.builds(cls, **{field.name: values(types[field.name]) for field in dataclasses.fields(cls)})


def values(annotation: Any) -> st.SearchStrategy[Any]:
    if get_origin(annotation) in (Union, UnionType):
        return st.one_of(st.none() if each is NoneType else values(each) for each in get_args(annotation))
    if get_origin(annotation) is tuple:
        element = get_args(annotation)[0]  # kio's classes mark the elements of an array that may be null
        one = next(each for each in get_args(element) or (element,) if each is not NoneType)
        return st.lists(values(one), max_size=3).map(tuple)
    if dataclasses.is_dataclass(annotation):
        return messages(annotation)
    if isinstance(annotation, type) and issubclass(annotation, timedelta):
        return st.from_type(annotation).filter(lambda span: abs(span) < LONGEST)
    return st.binary(max_size=200) if annotation is Records else st.from_type(annotation)


def written_by_kio(message: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize(("key", "version"), RESPONSES)
def test_the_bytes_are_those_of_kio(key: int, version: int) -> None:
    cls: Any = load_response_schema(key, version)

    @settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(message=messages(cls))
    def compare(message: Any) -> None:
        data = writer_of(cls)(message)
        assert data == written_by_kio(message)
        read, end = entity_reader(cls)(data, 0)
        assert (end, writer_of(cls)(read)) == (len(data), data)

    compare()


def test_long_texts_and_arrays_have_lengths_of_several_bytes() -> None:
    cls = load_request_schema(3, 12)
    topics = [{"topic_id": None, "name": "t" * size} for size in (0, 126, 127, 128, 249)] * 60
    topic = cls.__annotations__["topics"].__args__[0].__args__[0]
    message = cls(
        topics=tuple(topic(**each) for each in topics),
        allow_auto_topic_creation=True,
        include_topic_authorized_operations=False,
    )
    assert writer_of(cls)(message) == written_by_kio(message)

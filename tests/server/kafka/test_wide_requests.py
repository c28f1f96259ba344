"""Requests with thousands of elements: answered as many small ones; other requests are served meanwhile."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from random import Random
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kio.index import load_request_schema
from msgspec import structs

from sparklog.broker.apis import metadata
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.model import Topic
from sparklog.runtime.slices import FEW
from sparklog.server.kafka import dispatch
from sparklog.server.kafka.apis import TRANSLATIONS
from sparklog.server.kafka.array_counts import MAX_ELEMENTS
from sparklog.server.kafka.messages import make
from sparklog.server.kafka.packing import MAX_TAGS, varint
from sparklog.server.kafka.translation import Translation
from sparklog.server.kafka.wide_requests import is_wide, join, split, without_duplicates
from sparklog.testing import RunningBroker
from support.brokers.most_calls import MOST_CALLS, most_calls
from support.kafka.connection import Wire, message_frame, request_frame
from support.kafka.grown_requests import arrays, grow
from support.kafka.random_requests import make_request
from support.patience import PATIENCE_S
from support.runs.seeds import SEED

PRODUCE, FETCH, METADATA, OFFSET_FETCH, JOIN_GROUP, API_VERSIONS, DELETE_TOPICS = 0, 1, 3, 9, 11, 18, 20
DESCRIBE_TOPIC_PARTITIONS = 75
LAST = 77
"""The correlation id of the request behind the one that is tried out."""
APIS = {translation.api.name: translation for translation in TRANSLATIONS}
WIDE = [each for each in TRANSLATIONS if each.wide]
ONCE = [each for each in WIDE if each.wide and each.wide.once]
MAKES_TOPICS = {"CreateTopics", "CreatePartitions", "Metadata"}
READ_ONLY = {
    "ListOffsets", "OffsetForLeaderEpoch", "DescribeProducers", "DescribeConfigs", "OffsetFetch",
    "FindCoordinator", "DescribeGroups", "ConsumerGroupDescribe",
}  # fmt: skip
BYTES = 15_000 if SEED is None else 300_000


@pytest.mark.parametrize("translation", WIDE, ids=lambda each: each.api.name)
@pytest.mark.parametrize("most", [1, 3, 10])
def test_the_parts_of_a_request_are_the_request(translation: Translation, most: int) -> None:
    assert translation.wide
    names = translation.wide.request_arrays
    first, last = translation.api.versions
    for version in range(first, last + 1):
        for seed in range(5):
            request = make_request(Random(seed), translation.api.key, version)
            parts = list(split(request, names, most))

            assert set(named(join(parts, names), names)) == set(named(request, names))
            assert set().union(*(named(part, names) for part in parts)) == set(named(request, names))
            assert not any(is_wide(translation.wide._replace(part=most), part) for part in parts)


def named(value: Any, names: tuple[str, ...], within: str = "") -> Iterator[str]:
    """Each element, with its enclosing ones."""
    found = [name for name in names if isinstance(getattr(value, name, None), tuple)]
    if not found:
        yield f"{within} {value!r}"
        return
    within = f"{within} {dataclasses.replace(value, **{found[0]: ()})!r}"
    yield within
    for element in getattr(value, found[0]):
        yield from named(element, names, within)


@pytest.mark.parametrize("name", sorted(READ_ONLY))
def test_a_wide_request_is_answered_as_its_parts_are(name: str, wire: Wire) -> None:
    translation = APIS[name]
    assert translation.wide
    key = translation.api.key
    for version in {*translation.api.versions}:
        for path in arrays(key, version):
            if not set(path) <= set(translation.wide.request_arrays):
                continue
            request = grow(Random(name), key, version, path, 3_000, numbered=True)
            assert is_wide(translation.wide, request)
            answers = [
                ask(wire, part) for part in split(request, translation.wide.request_arrays, translation.wide.part)
            ]
            assert ask(wire, request) == join(answers, translation.wide.response_arrays)


@pytest.mark.parametrize("translation", ONCE, ids=lambda each: each.api.name)
def test_what_is_named_again_is_answered_once(translation: Translation, wire: Wire) -> None:
    wide, api = translation.wide, translation.api
    assert wide
    for version in {*api.versions}:
        for path in arrays(api.key, version):
            if not set(path) <= set(wide.request_arrays):
                continue
            request = grow(Random(api.name), api.key, version, path, 100, numbered=True)
            again = dataclasses.replace(request, **{path[0]: getattr(request, path[0]) * 2})
            assert not is_wide(wide._replace(part=100), again)
            names = list(named(without_duplicates(wide, again), wide.request_arrays))
            assert len(names) == len({*names})
            assert {*names} == {*named(request, wide.request_arrays)}
            assert answer_to(wire, again) == answer_to(wire, without_duplicates(wide, request))


def test_requests_for_the_offsets_of_one_group_are_merged() -> None:
    wide = APIS["OffsetFetch"].wide
    assert wide

    def group(group_id: str, member_id: str, topics: dict[str, list[int]] | None) -> dict[str, object]:
        named = topics and [{"name": name, "partition_indexes": numbers} for name, numbers in topics.items()]
        return {"group_id": group_id, "member_id": member_id, "member_epoch": -1, "topics": named}

    def merged(*groups: dict[str, object]) -> Any:
        request = make(load_request_schema(OFFSET_FETCH, 9), groups=groups, require_stable=False)
        return without_duplicates(wide, request).groups

    def made(*groups: dict[str, object]) -> Any:
        return make(load_request_schema(OFFSET_FETCH, 9), groups=groups, require_stable=False).groups

    some, more = {"a": [0, 1, 1], "b": [2]}, {"b": [2, 3], "a": [4, 0]}
    assert merged(group("g", "", some), group("h", "", some), group("g", "other", more)) == made(
        group("g", "", {"a": [0, 1, 4], "b": [2, 3]}), group("h", "", {"a": [0, 1], "b": [2]})
    )
    everything = [group("g", f"{number}", None if number % 2 else some) for number in range(100)]
    assert merged(*everything) == made(group("g", "0", {"a": [0, 1], "b": [2]}), group("g", "1", None))


@pytest.mark.slow
@pytest.mark.parametrize("version", [1, 8, 13])
def test_topics_are_described_in_parts(
    kafka_broker: RunningBroker,
    wire: Wire,
    kafka_bootstrap: str,
    new_name: Callable[[], str],
    version: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [new_name() for _ in range(5)]
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    for made in admin.create_topics([NewTopic(name, number + 1) for number, name in enumerate(names)]).values():
        made.result(PATIENCE_S)
    how = {
        "allow_auto_topic_creation": False, "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }  # fmt: skip
    named = {"topics": [{"name": name, "topic_id": None} for name in (*names, "nobody's", *names)]}
    everything, some = wire.send(METADATA, version, topics=None, **how), wire.send(METADATA, version, **named, **how)

    monkeypatch.setattr(metadata, "PART", 3)
    cache = kafka_broker.node.broker.metadata
    kafka_broker.run(_put(cache, cache.get(names[0])))  # as after a change: no answer that was made before is kept
    assert wire.send(METADATA, version, topics=None, **how) == everything
    assert wire.send(METADATA, version, **named, **how) == some
    assert [topic.name for topic in some.topics] == [*names, "nobody's"]
    assert {topic.name: len(topic.partitions) for topic in everything.topics}.items() >= {
        (name, number + 1) for number, name in enumerate(names)
    }


@pytest.mark.slow
def test_others_have_their_turn_while_much_is_described(
    kafka_broker: RunningBroker, kafka_bootstrap: str, kafka_address: tuple[str, int], new_name: Callable[[], str]
) -> None:
    """One topic of many partitions, and many names without topics."""
    name = new_name()
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    admin.create_topics([NewTopic(name, 1)])[name].result(PATIENCE_S)
    large, cache = f"{name}-large", kafka_broker.node.broker.metadata
    topic = cache.get(name)
    many = structs.replace(topic, name=large, topic_id=UUID(int=1), partitions=topic.partitions * 3_000)
    kafka_broker.run(_put(cache, many))
    names = [{"name": f"{number}"} for number in range(40_000)]
    try:
        with Wire(kafka_address) as wire, most_calls(kafka_broker) as most:
            found = wire.send(METADATA, 4, topics=[{"name": large}, *names], allow_auto_topic_creation=False)
            pages = wire.send(DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": large}], response_partition_limit=2_000)
    finally:
        kafka_broker.run(_remove(cache, large))
    assert [topic.name for topic in found.topics] == [large, *(each["name"] for each in names)]
    assert [part.partition_index for part in found.topics[0].partitions] == [*range(3_000)]
    assert [part.partition_index for part in pages.topics[0].partitions] == [*range(2_000)]
    assert most.calls < MOST_CALLS / 4, most


async def _put(cache: MetadataCache, topic: Topic) -> None:
    cache.put(topic)


async def _remove(cache: MetadataCache, name: str) -> None:
    cache.remove(name)


def answer_to(wire: Wire, request: Any) -> bytes:
    """The bytes of the answer, because kio cannot read every value."""
    wire.write_frame(message_frame(request))
    return wire.read_frame()


def ask(wire: Wire, request: Any) -> Any:
    wire.write_frame(message_frame(request))
    return wire.read(request.__api_key__, request.__version__, 1)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("name", APIS)
def test_others_have_their_turn_while_a_long_request_is_served(
    name: str, kafka_broker: RunningBroker, kafka_address: tuple[str, int]
) -> None:
    """For any long array: the broker makes at most some thousand calls in one turn."""
    api = APIS[name].api
    random = Random(f"{name} {SEED}")
    for version in {*api.versions}:
        for path in arrays(api.key, version):
            for numbered in (False, name not in MAKES_TOPICS):
                frame = message_frame(grow(random, api.key, version, path, BYTES, numbered=numbered))
                with most_calls(kafka_broker) as most, Wire(kafka_address) as wire:
                    wire.write_frame(frame)
                    with suppress(ConnectionError):
                        wire.write_frame(request_frame(API_VERSIONS, 0, LAST))
                        while struct.unpack_from(">i", wire.read_frame()) != (LAST,):
                            pass
                assert most.calls < MOST_CALLS, f"{name} {version}, {'/'.join(path)}: {most}"


@pytest.mark.slow
def test_few_large_requests_are_in_memory_at_once(
    kafka_address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_wide, in_work, most = dispatch.serve_wide, 0, 0

    async def counted(*of: Any) -> Any:
        nonlocal in_work, most
        in_work += 1
        most = max(most, in_work)
        try:
            return await serve_wide(*of)
        finally:
            in_work -= 1

    monkeypatch.setattr(dispatch, "serve_wide", counted)
    names = tuple(f"nobody's-{number}" for number in range(5_000))
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(kafka_address)) for _ in range(3 * FEW)]
        for wire in wires:
            wire.write(DELETE_TOPICS, 3, topic_names=names, timeout=0)
        for wire in wires:
            assert len(wire.read(DELETE_TOPICS, 3, 1).responses) == len(names)
    assert most == FEW


def test_more_than_a_broker_takes_at_once_closes_the_connection_and_says_why(
    kafka_address: tuple[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sparklog.server.kafka.connection")
    names = tuple(f"{number}" for number in range(MAX_ELEMENTS + 1))
    with Wire(kafka_address) as wire, pytest.raises(ConnectionError):
        wire.send(DELETE_TOPICS, 3, topic_names=names, timeout=0)
    assert f"the request names more than {MAX_ELEMENTS} things at once: ask in several requests" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(("key", "version"), [(PRODUCE, 8), (PRODUCE, 12), (FETCH, 4), (JOIN_GROUP, 9)])
def test_of_what_is_served_as_one_less_is_taken(kafka_address: tuple[str, int], key: int, version: int) -> None:
    [path, *_] = sorted(arrays(key, version), key=len, reverse=True)
    frame = message_frame(grow(Random(1), key, version, path, 1_000_000, numbered=False))
    with Wire(kafka_address) as wire:
        wire.write_frame(frame)
        with pytest.raises(ConnectionError):
            wire.read_frame()


@pytest.mark.parametrize("tags", [MAX_TAGS, MAX_TAGS + 1, 500_000])
def test_a_header_of_many_tagged_fields_is_not_walked(
    tags: int, wire: Wire, kafka_broker: RunningBroker, kafka_address: tuple[str, int]
) -> None:
    how = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    wire.send(METADATA, 12, topics=(), **how)  # the first one of a process does more
    header = struct.pack(">hhih", METADATA, 12, 1, -1) + varint(tags) + b"\5\0" * tags
    with most_calls(kafka_broker) as most, Wire(kafka_address) as other:
        other.write_frame(header + b"\1\0\0\0")
        if tags > MAX_TAGS:
            with pytest.raises(ConnectionError):
                other.read_frame()
        else:
            assert other.read(METADATA, 12, 1).topics == ()
    assert most.calls < MOST_CALLS

"""Cached answers have the same bytes as those of the handlers, after any change; the cache is limited."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from msgspec import structs

from sparklog.base.acls import AclBinding, AclOperation, AclPermission, AclResourceType, PatternType
from sparklog.base.addresses import Address
from sparklog.base.config import STANDARD_AUTHORIZER
from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.base.quotas import ClientQuota, entity
from sparklog.cluster.messages import TopicState, UpdateMetadata
from sparklog.cluster.model import BrokerInfo, PartitionInfo
from sparklog.server.kafka import answer_cache
from sparklog.server.kafka.answer_cache import AnswerCache
from sparklog.server.kafka.apis import TRANSLATIONS
from sparklog.server.kafka.dispatch import answer, read_frame
from sparklog.server.kafka.messages import make
from sparklog.server.kafka.translation import Session
from sparklog.testing import RunningBroker, start_broker
from support.kafka.connection import Wire, message_frame
from support.patience import wait_until
from support.runs.seeds import examples

pytestmark = pytest.mark.slow

METADATA, FIND_COORDINATOR, API_VERSIONS, DESCRIBE_CONFIGS, DESCRIBE_CLUSTER = 3, 10, 18, 32, 60
APIS = {translation.api.key: translation.api for translation in TRANSLATIONS if translation.api.cached_by}
COORDINATED = ("__consumer_offsets", "__transaction_state")
REAL = "real"
"""A topic with a log on this broker; the others are known from the controller's updates only."""
NAMES = ("a", "b", REAL)
IDS = {name: UUID(int=number) for number, name in enumerate((*NAMES, *COORDINATED), 1)}
BROKERS = {
    number: BrokerInfo(
        broker_id=number, grpc_address=f"h{number}:1", listeners={"PLAINTEXT": Address(f"h{number}", 9092)}, rack="r",
        version="1",
    )
    for number in range(3)
}  # fmt: skip
USERS = ("User:alice", "User:bob")
Right = tuple[AclOperation, AclResourceType, str]
RIGHTS: tuple[Right, ...] = tuple(
    (operation, kind, user)
    for operation, kind in (
        (AclOperation.DESCRIBE, AclResourceType.TOPIC),
        (AclOperation.WRITE, AclResourceType.TOPIC),
        (AclOperation.DESCRIBE, AclResourceType.GROUP),
        (AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID),
        (AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC),
        (AclOperation.DESCRIBE_CONFIGS, AclResourceType.CLUSTER),
        (AclOperation.ALTER, AclResourceType.CLUSTER),
    )
    for user in USERS
)
EPOCH = 1_000
"""Greater than that of the broker's own controller."""


class Cluster:
    """A broker, and the controller's updates for it."""

    def __init__(self, running: RunningBroker) -> None:
        self.running = running
        self.broker = running.node.broker
        services = self.broker.services
        running.run(services.controller.stop())  # it would raise its epoch above that of these updates
        self.replica = services.replicas.get(TopicPartition(REAL, 0))
        self._numbers = itertools.count(1)
        self._state: dict[str, Any] = {"brokers": (BROKERS[0],), "controller_id": 0, "broker_overrides": {}}
        self.topics: dict[str, TopicState] = {}

    def begin(self) -> None:
        """Begin again with the same state."""
        self._state = {"brokers": tuple(BROKERS.values()), "controller_id": 0, "broker_overrides": {}}
        self.topics = {name: _topic(name, topic_id) for name, topic_id in IDS.items()}
        self.tell(*self.topics.values(), is_full=True)
        self.set_disk(works=True)
        self.allow(frozenset(RIGHTS))

    def tell(self, *topics: TopicState, deleted: tuple[str, ...] = (), is_full: bool = False) -> None:
        self.broker.metadata.update(
            UpdateMetadata(
                controller_epoch=EPOCH, broker_epoch=EPOCH, number=next(self._numbers), topics=topics, deleted=deleted,
                is_full=is_full, **self._state,
            )
        )  # fmt: skip

    # Changes

    def put(self, name: str, partitions: int, is_full: bool) -> None:
        """Add a topic, also in place of an older one."""
        self.topics[name] = _topic(name, UUID(int=1_000 + next(self._numbers)), partitions)
        self.tell(*(self.topics.values() if is_full else [self.topics[name]]), is_full=is_full)

    def delete(self, name: str) -> None:
        if self.topics.pop(name, None):
            self.tell(deleted=(name,))

    def move(self, name: str, leader: int, in_sync: tuple[int, ...]) -> None:
        if topic := self.topics.get(name):
            moved = tuple(
                structs.replace(each, leader=leader, in_sync_replicas=in_sync, leader_epoch=each.leader_epoch + 1)
                for each in topic.partitions
            )
            self.topics[name] = structs.replace(topic, partitions=moved)
            self.tell(self.topics[name])

    def configure(self, name: str) -> None:
        """Set another value."""
        if topic := self.topics.get(name):
            overrides = {"retention.ms": str(next(self._numbers))}
            self.topics[name] = structs.replace(topic, overrides=overrides)
            self.tell(self.topics[name])

    def set_brokers(self, live: frozenset[int], controller_id: int) -> None:
        self._state |= {"brokers": tuple(BROKERS[each] for each in sorted(live)), "controller_id": controller_id}
        self.tell()

    def set_keys(self, keys: dict[int, dict[str, str]]) -> None:
        self._state["broker_overrides"] = keys
        self.tell()

    def set_own_keys(self, keys: dict[str, str]) -> None:
        """Set keys that this broker has read from the store before an update of the controller."""
        self.broker.dynamic.set_overrides({}, keys)

    def set_disk(self, works: bool) -> None:
        replicas = self.broker.services.replicas
        if works:
            replicas.put(TopicPartition(REAL, 0), self.replica.log, self.replica.config, high_watermark=0)
        else:
            replicas.set_offline(TopicPartition(REAL, 0), "the disk failed")

    def allow(self, rights: frozenset[Right]) -> None:
        self.broker.services.authorizer.set_acls(
            AclBinding(
                kind, "kafka-cluster" if kind is AclResourceType.CLUSTER else "*", PatternType.LITERAL, principal, "*",
                operation, AclPermission.ALLOW,
            )
            for operation, kind, principal in rights
        )  # fmt: skip

    def subscribe(self, interval_ms: int) -> None:
        """Add a client metrics subscription, which is only in the store."""
        store = self.broker.services.client_metrics_store
        store.change("s", lambda _: {"interval.ms": str(interval_ms)})

    # Requests

    async def ask(self, request: Any, session: Session) -> bytes | str:
        """The whole answer, or the reason why the connection is closed."""
        frame = memoryview(bytearray(message_frame(request)))
        try:
            return b"".join([bytes(part) for part in await answer(read_frame(self.broker, session, frame))])
        except KafkaError as error:
            return repr(error)

    def figures(self, key: int) -> tuple[int, int]:
        """The number of counted requests of an API, and of the refused ones."""
        figures = self.broker.metrics.requests[APIS[key].name]
        return figures.count, figures.refused


def _topic(name: str, topic_id: UUID, partitions: int = 2) -> TopicState:
    replicas = (2, 0) if name == REAL else (1, 2)
    info = PartitionInfo(leader=replicas[0], leader_epoch=0, replicas=replicas, in_sync_replicas=replicas)
    return TopicState(name=name, topic_id=topic_id, partitions=(info,) * partitions, overrides={})


@contextmanager
def _start(**keys: Any) -> Iterator[Cluster]:
    with start_broker(kafka=True, auto_create_topics_enable=False, controlled_shutdown_enable=False, **keys) as broker:
        broker.run(broker.node.broker.services.topics.create(REAL, partitions=2))
        yield Cluster(broker)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with _start() as started:
        yield started


@pytest.fixture(scope="module")
def guarded() -> Iterator[Cluster]:
    """The same cluster with an authorizer."""
    with _start(authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:ANONYMOUS") as started:
        yield started


NAME = st.sampled_from(NAMES)
EXISTING = st.sampled_from((*NAMES, *COORDINATED))
TEXTS = st.integers(0, 9).flatmap(lambda chance: EXISTING if chance else st.sampled_from(("nobody's", "", "a b")))
"""Most name what there is: an answer with an error is not kept."""
LIVE = st.sampled_from([frozenset(live) for live in ((0, 1, 2), (0, 1), (0, 2), (1, 2), (0,), ())])
CHANGES: dict[str, tuple[st.SearchStrategy[Any], ...]] = {
    "put": (NAME, st.integers(1, 2), st.booleans()),
    "delete": (NAME,),
    "move": (EXISTING, st.integers(-1, 2), LIVE.map(lambda live: tuple(sorted(live)))),
    "configure": (NAME,),
    "set_brokers": (LIVE, st.integers(-1, 2)),
    "set_keys": (
        st.dictionaries(
            st.sampled_from((-1, 0, 1)),
            st.sampled_from(({"log.segment.bytes": "2000000"}, {"log.retention.ms": "5"}, {"cordoned.log.dirs": "*"})),
        ),
    ),
    "set_own_keys": (st.sampled_from(({}, {"log.segment.bytes": "3000000"}, {"log.retention.ms": "6"})),),
    "allow": (st.frozensets(st.sampled_from(RIGHTS)) | st.just(frozenset(RIGHTS)),),
    "subscribe": (st.integers(100, 102),),
}
CHANGE = st.sampled_from(sorted(CHANGES)).flatmap(lambda name: st.tuples(st.just(name), st.tuples(*CHANGES[name])))
TOPICS = st.none() | st.lists(TEXTS.map(lambda name: {"name": name, "topic_id": None}), max_size=3)
BY_ID = st.lists(
    st.sampled_from([{"name": None, "topic_id": each} for each in (*IDS.values(), UUID(int=7))]), max_size=2
)
FIELDS: dict[int, dict[str, st.SearchStrategy[Any]]] = {
    METADATA: {
        "topics": TOPICS | BY_ID,
        "allow_auto_topic_creation": st.booleans(),
        "include_topic_authorized_operations": st.booleans(),
        "include_cluster_authorized_operations": st.booleans(),
    },
    FIND_COORDINATOR: {
        "key": TEXTS,
        "key_type": st.sampled_from((0, 1, 2)),
        "coordinator_keys": st.lists(TEXTS, max_size=3),
    },
    API_VERSIONS: {
        "client_software_name": st.sampled_from(("me", "you", "-")),
        "client_software_version": st.sampled_from(("1", "2")),
    },
    DESCRIBE_CONFIGS: {
        "resources": st.lists(
            st.builds(
                lambda resource, **fields: {"resource_type": resource[0], "resource_name": resource[1], **fields},
                st.sampled_from([*((2, name) for name in NAMES), (4, "0"), (4, ""), (16, "s"), (4, "1"), (3, "a")]),
                **{
                    "configuration_keys": st.sampled_from(
                        (None, ["retention.ms"], ["log.segment.bytes", "interval.ms"])
                    ),
                },
            ),
            max_size=2,
        ),
        "include_synonyms": st.booleans(),
        "include_documentation": st.booleans(),
    },
    DESCRIBE_CLUSTER: {
        "include_cluster_authorized_operations": st.booleans(),
        "endpoint_type": st.sampled_from((1, 1, 1, 2, 3)),
        "include_fenced_brokers": st.booleans(),
    },
}


@st.composite
def request_of_any_version(draw: st.DrawFn, key: int) -> Any:
    version = draw(st.integers(*APIS[key].versions))
    fields = {name: draw(values) for name, values in FIELDS[key].items()}
    if key == METADATA and (fields["topics"] is None) and version == 0:
        fields["topics"] = []
    if key == METADATA and version < 10:  # names cannot be null
        fields["topics"] = [each for each in fields["topics"] or () if each["name"] is not None]
    return make(load_request_schema(key, version), **fields)


REQUESTS = st.tuples(*(request_of_any_version(key) for key in FIELDS))
DISK = (("set_disk", (False,)), ("set_disk", (True,)))
"""One after the other, so that nothing else has changed meanwhile."""
STEPS = st.lists(CHANGE.map(lambda change: (change,)) | st.just(DISK), min_size=1, max_size=8)


def test_all_apis_whose_answers_are_kept_are_tried() -> None:
    assert set(APIS) == set(FIELDS)


async def compare(cluster: Cluster, requests: tuple[Any, ...], steps: list[tuple[Any, ...]]) -> None:
    """Repeat all requests after each change, with and without the cache."""
    cluster.begin()
    answers = AnswerCache(cluster.broker)
    for name, arguments in (("subscribe", (100,)), *itertools.chain(*steps)):
        getattr(cluster, name)(*arguments)
        for request, user in itertools.product(requests, USERS):
            made, *kept = [await _ask(cluster, request, user, each) for each in (None, answers, answers)]
            assert kept == [made, made], (name, request)


async def _ask(cluster: Cluster, request: Any, user: str, answers: AnswerCache | None) -> tuple[Any, ...]:
    """The answer, the noted software of the connection, and the counts of requests."""
    count, refused = cluster.figures(request.__api_key__)
    session = Session(listener="PLAINTEXT", host="127.0.0.1", principal=user, answers=answers)
    found = await cluster.ask(request, session)
    now_count, now_refused = cluster.figures(request.__api_key__)
    return found, session.client_software, session.client_software_version, now_count - count, now_refused - refused


TRIED = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@TRIED
@given(requests=REQUESTS, steps=STEPS)
def test_a_kept_answer_is_what_the_handler_would_give(
    cluster: Cluster, requests: tuple[Any, ...], steps: list[Any]
) -> None:
    cluster.running.run(compare(cluster, requests, steps))


@TRIED
@given(requests=REQUESTS, steps=STEPS)
def test_each_client_is_given_what_it_has_a_right_to(
    guarded: Cluster, requests: tuple[Any, ...], steps: list[Any]
) -> None:
    guarded.running.run(compare(guarded, requests, steps))


# What is kept, and what is not


class Asking:
    """Requests to the cluster at its start, with the number of calls of handlers."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.served = 0
        self.answers = AnswerCache(cluster.broker)
        self._cluster = cluster
        serve = cluster.broker.clients.serve

        def counted(*of: Any) -> Any:
            self.served += 1
            return serve(*of)

        monkeypatch.setattr(cluster.broker.clients, "serve", counted)
        cluster.running.run(self._begin())

    async def _begin(self) -> None:
        self._cluster.begin()

    def ask(self, key: int, version: int, **fields: Any) -> bytes:
        session = Session(listener="PLAINTEXT", host="127.0.0.1", principal=USERS[0], answers=self.answers)
        request = make(load_request_schema(key, version), **fields)
        found = self._cluster.running.run(self._cluster.ask(request, session))
        assert isinstance(found, bytes)
        return found

    def metadata(self, *names: str) -> bytes:
        topics = [{"name": name, "topic_id": None} for name in names]
        return self.ask(METADATA, 4, topics=topics, allow_auto_topic_creation=False)


@pytest.fixture
def asking(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Asking:
    return Asking(cluster, monkeypatch)


SOFTWARE = {"client_software_name": "me", "client_software_version": "1"}
TOPIC_CONFIG = {"resource_type": 2, "resource_name": "a", "configuration_keys": None}


@pytest.mark.parametrize(
    ("key", "version", "fields"),
    [
        (METADATA, 12, {"topics": [{"name": REAL, "topic_id": None}], "allow_auto_topic_creation": True}),
        (FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]}),
        (API_VERSIONS, 3, SOFTWARE),
        (DESCRIBE_CONFIGS, 4, {"resources": [TOPIC_CONFIG], "include_synonyms": True}),
        (DESCRIBE_CLUSTER, 2, {"include_cluster_authorized_operations": False, "include_fenced_brokers": False}),
    ],
)
def test_what_is_asked_again_is_not_made_again(asking: Asking, key: int, version: int, fields: dict[str, Any]) -> None:
    optional = {name: False for name in FIELDS[key] if name.startswith("include_")}
    answers = {asking.ask(key, version, **optional | fields) for _ in range(4)}
    assert (len(answers), asking.served) == (1, 1)


def test_the_oldest_answers_make_room(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_cache, "MAX_ENTRIES", 2)
    for names in (("a",), ("b",), ("a",), (REAL,), ("b",)):
        asking.metadata(*names)
    assert (asking.served, asking.answers.count) == (3, 2)
    asking.metadata("a")
    assert (asking.served, asking.answers.count) == (4, 2)


def test_kept_answers_take_a_bounded_number_of_bytes(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(asking.metadata("a"))
    room = asking.answers.size_bytes
    assert size - 8 < room < size + 100
    monkeypatch.setattr(answer_cache, "MAX_BYTES", 2 * room)
    for names in (("b",), ("a", "b"), (REAL,), ("b", "a")):
        asking.metadata(*names)
        assert asking.answers.size_bytes <= 2 * room
    monkeypatch.setattr(answer_cache, "MAX_BYTES", 0)
    asking.metadata(REAL, "a")
    assert (asking.answers.count, asking.answers.size_bytes) == (0, 0)


def test_large_requests_are_not_kept(asking: Asking) -> None:
    names = ("a",) * (answer_cache.MAX_REQUEST_BYTES // 3 + 1)
    assert asking.metadata(*names) == asking.metadata(*names)
    assert (asking.served, asking.answers.count) == (2, 0)


def test_large_answers_are_not_kept(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog.server.kafka.dispatch.MAX_ANSWER_BYTES", 10)
    assert asking.metadata("a") == asking.metadata("a")
    assert (asking.served, asking.answers.count) == (2, 0)


def test_errors_are_not_kept(asking: Asking) -> None:
    assert asking.metadata("a", "nobody's") == asking.metadata("a", "nobody's")
    assert (asking.served, asking.answers.count) == (2, 0)


def test_a_change_while_an_answer_is_made_is_not_lost(
    cluster: Cluster, asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers, find = cluster.broker.handlers, APIS[FIND_COORDINATOR]
    handle = handlers[find]

    async def handle_late(request: Any) -> Any:
        found = await handle(request)
        cluster.move("__consumer_offsets", 2, (2,))
        return found

    monkeypatch.setitem(handlers, find, handle_late)
    fields: dict[str, Any] = {"key_type": 0, "coordinator_keys": ["g"]}
    asking.ask(FIND_COORDINATOR, 4, **fields)
    monkeypatch.setitem(handlers, find, handle)
    assert b"h2" in asking.ask(FIND_COORDINATOR, 4, **fields)


def test_the_audit_log_has_each_decision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.log"
    with _start(
        authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:ANONYMOUS", authorizer_audit_log=str(path)
    ) as cluster:
        asking = Asking(cluster, monkeypatch)
        for _ in range(3):
            asking.metadata("a")
        assert (asking.served, asking.answers.count) == (3, 0)
        assert asking.ask(API_VERSIONS, 3, **SOFTWARE) == asking.ask(API_VERSIONS, 3, **SOFTWARE)
        assert (asking.served, asking.answers.count) == (4, 1)
        assert USERS[0] in path.read_text()


def test_a_client_over_its_quota_is_told_to_wait(cluster: Cluster, asking: Asking) -> None:
    """Its answers have a throttle time, so they are not cached."""
    quotas = cluster.broker.client_quotas

    async def limit(*values: ClientQuota) -> None:
        quotas.set_quotas(values)

    with Wire(cluster.running.node.kafka_addresses["PLAINTEXT"]) as wire:
        fields = {"topics": [{"name": "a"}], "allow_auto_topic_creation": False}
        assert wire.send(METADATA, 4, **fields) == wire.send(METADATA, 4, **fields)
        made = asking.served
        quota = ClientQuota(entity=entity({"client-id": wire.client_id}), values={"request_percentage": 0.01})
        cluster.running.run(limit(quota))
        try:
            wait_until(lambda: wire.send(METADATA, 4, **fields).throttle_time, "the client has to wait")
            assert asking.served > made
        finally:
            cluster.running.run(limit())
        made = asking.served
        assert not wire.send(METADATA, 4, **fields).throttle_time
        assert asking.served == made

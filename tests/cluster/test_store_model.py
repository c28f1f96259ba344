"""Engines beside a simple model: two brokers' stores, any sequence of calls, watches and ends of sessions."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from sparklog.base.errors import BadVersion, NodeExists, NoNode, NotEmpty, StoreError
from sparklog.cluster.store import Check, Create, Delete, Operation, SessionState, Set, parent_of
from support.runs.seeds import SEED, examples
from support.store_engines import Engine, MemoryEngine, SqliteEngine, Told

PATHS = ("/a", "/b", "/a/x", "/a/x/y")
FLUSH = "/flush"
which = st.integers(0, 1)
paths = st.sampled_from(PATHS)
data = st.binary(max_size=2)
versions = st.integers(-1, 2)
operations: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Create, paths, data, st.booleans()),
    st.builds(Set, paths, data, versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, versions),
)


class Model:
    """A tree: data, version and owner of each path."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int, int | None]] = {"/": (b"", 0, None), FLUSH: (b"", 0, None)}
        self.creations: Counter[str] = Counter()
        self.watches: set[tuple[int, str, str]] = set()
        """(store, kind, path)"""
        self.called: Counter[tuple[int, str]] = Counter()

    def children(self, path: str) -> list[str]:
        return sorted(found.rpartition("/")[2] for found in self.nodes if parent_of(found) == path)

    def check(self, path: str, version: int = -1) -> None:
        if path not in self.nodes:
            raise NoNode
        if version not in (-1, self.nodes[path][1]):
            raise BadVersion

    def multi(self, listed: list[Operation], store: int) -> None:
        before = dict(self.nodes), Counter(self.creations), self.watches, Counter(self.called)
        try:
            for operation in listed:
                self._apply(operation, store)
        except StoreError:
            self.nodes, self.creations, self.watches, self.called = before
            raise

    def _apply(self, operation: Operation, store: int) -> None:
        path = operation.path
        match operation:
            case Create(_, value, ephemeral):
                if path in self.nodes:
                    raise NodeExists
                self.check(parent_of(path))
                if self.nodes[parent_of(path)][2] is not None:
                    raise StoreError
                self.nodes[path] = (value, 0, store if ephemeral else None)
                self.creations[parent_of(path)] += 1
                self.creations[path] = 0
                self.fire(("node", path), ("children", parent_of(path)))
            case Set(_, value, version):
                self.check(path, version)
                self.nodes[path] = (value, self.nodes[path][1] + 1, self.nodes[path][2])
                self.fire(("node", path))
            case Delete(_, version):
                self.check(path, version)
                if self.children(path):
                    raise NotEmpty
                del self.nodes[path]
                self.fire(("node", path), ("children", path), ("children", parent_of(path)))
            case Check(_, version):
                self.check(path, version)

    def fire(self, *changed: tuple[str, str]) -> None:
        self.call({watch for watch in self.watches if watch[1:] in changed})

    def call(self, watches: set[tuple[int, str, str]]) -> None:
        self.watches = self.watches - watches
        for watch in watches:
            self.called[watch[0], watch[2]] += 1

    def end_session(self, store: int) -> None:
        for path in sorted(path for path, node in self.nodes.items() if node[2] == store):
            self._apply(Delete(path), store)
        self.call({watch for watch in self.watches if watch[0] == store})


class StoreMachine(RuleBasedStateMachine):
    engine_type: type[Engine]

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.engine: Any = MemoryEngine() if self.engine_type is MemoryEngine else SqliteEngine(self.folder)
        self.stores = [self.engine.open() for _ in range(2)]
        self.told = [Told(), Told()]
        """The arguments of the watches' calls, by store."""
        self.states = [Told(), Told()]
        for store, told in zip(self.stores, self.states, strict=True):
            store.listen(told)
        self.stores[0].create(FLUSH)
        self.model = Model()
        self.model.creations["/"] = 1

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        shutil.rmtree(self.folder)

    def same(self, real: Any, modelled: Any) -> None:
        """Check that both return the same, or raise the same error."""
        outcomes: list[Any] = []
        for call in (real, modelled):
            try:
                outcomes.append(call())
            except StoreError as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1]

    @rule(store=which, path=paths, value=data, ephemeral=st.booleans())
    def create(self, store: int, path: str, value: bytes, ephemeral: bool) -> None:
        def modelled() -> str:
            self.model.multi([Create(path, value, ephemeral)], store)
            return path

        self.same(lambda: self.stores[store].create(path, value, ephemeral=ephemeral), modelled)

    @rule(store=which, path=st.sampled_from(("/s_", "/a/s_")))
    def create_sequential(self, store: int, path: str) -> None:
        def modelled() -> str:
            self.model.check(parent_of(path))
            numbered = f"{path}{self.model.creations[parent_of(path)]:010}"
            self.model.multi([Create(numbered)], store)
            return numbered

        self.same(lambda: self.stores[store].create(path, sequential=True), modelled)

    @rule(store=which, path=paths, value=data, version=versions)
    def set(self, store: int, path: str, value: bytes, version: int) -> None:
        def modelled() -> int:
            self.model.multi([Set(path, value, version)], store)
            return self.model.nodes[path][1]

        self.same(lambda: self.stores[store].set(path, value, version), modelled)

    @rule(store=which, path=paths, version=versions)
    def delete(self, store: int, path: str, version: int) -> None:
        self.same(
            lambda: self.stores[store].delete(path, version),
            lambda: self.model.multi([Delete(path, version)], store),
        )

    @rule(store=which, listed=st.lists(operations, max_size=5))
    def multi(self, store: int, listed: list[Operation]) -> None:
        self.same(lambda: self.stores[store].multi(listed), lambda: self.model.multi(listed, store))

    @rule(store=which, path=paths, kind=st.sampled_from(("get", "exists", "children")))
    def watch(self, store: int, path: str, kind: str) -> None:
        def modelled() -> Any:
            if kind != "exists":
                self.model.check(path)
            self.model.watches.add((store, "children" if kind == "children" else "node", path))
            if kind == "children":
                return self.model.children(path)
            return path in self.model.nodes if kind == "exists" else self.model.nodes[path][:2]

        def real() -> Any:
            found = getattr(self.stores[store], kind)(path, self.told[store])
            return found[:2] if kind == "get" else found

        self.same(real, modelled)

    @rule(store=which)
    def end_session(self, store: int) -> None:
        self.engine.expire(self.stores[store])
        self.model.end_session(store)
        assert [self.states[store].next() for _ in range(2)] == [SessionState.EXPIRED, SessionState.CONNECTED]

    @invariant()
    def trees_are_the_same(self) -> None:
        for store in self.stores:
            owners = {self.stores[number].session_id: number for number in range(2)} | {0: None}
            assert set(store.children("/")) == set(self.model.children("/"))
            for path, node in self.model.nodes.items():
                found = store.get(path)
                if path not in ("/", FLUSH):
                    assert (found.data, found.version, owners[found.owner]) == node
                assert store.children(path) == self.model.children(path)

    @invariant()
    def watches_are_called(self) -> None:
        expected: list[Counter[str]] = [Counter(), Counter()]
        for (store, path), count in self.model.called.items():
            expected[store][path] += count
        self.model.called.clear()
        for store, told in zip(self.stores, self.told, strict=True):
            flushed = Told()
            store.get(FLUSH, flushed)
            store.set(FLUSH, b"")
            flushed.next()
            assert Counter(told.rest()) == expected[self.stores.index(store)]


def run(engine: type[Engine], count: int, steps: int) -> None:
    machine = type("Machine", (StoreMachine,), {"engine_type": engine})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(count),
            stateful_step_count=steps,
            deadline=None,
            derandomize=SEED is None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize(("engine", "count"), [(MemoryEngine, 30), (SqliteEngine, 10)])
def test_engines_do_what_the_model_does(engine: type[Engine], count: int) -> None:
    run(engine, count, steps=25)

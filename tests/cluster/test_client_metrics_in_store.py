"""Subscriptions to client metrics in the cluster store."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sparklog.base.errors import InvalidConfig, PolicyViolation
from sparklog.cluster.client_metrics import MAX_SUBSCRIPTIONS, ClientMetricsStore
from sparklog.cluster.config_nodes import CONFIG_CHANGES
from sparklog.cluster.sqlite import SqliteStore
from sparklog.cluster.store import ensure_path


@pytest.fixture
def store() -> Iterator[SqliteStore]:
    made = SqliteStore.open(":memory:")
    ensure_path(made, CONFIG_CHANGES)
    yield made
    made.close()


@pytest.mark.parametrize(("name", "part"), [("basic", "basic"), ("a b/c", "a%20b%2Fc"), ("..", "%2E%2E")])
def test_a_subscription_is_stored_at_its_path_and_the_controller_is_notified(
    store: SqliteStore, name: str, part: str
) -> None:
    ClientMetricsStore(store).change(name, lambda _: {"metrics": "*"})
    assert json.loads(store.get(f"/config/client-metrics/{part}").data) == {"version": 1, "config": {"metrics": "*"}}
    (notice,) = store.children(CONFIG_CHANGES)
    told = json.loads(store.get(f"{CONFIG_CHANGES}/{notice}").data)
    assert told == {"version": 2, "entity_path": f"client-metrics/{part}"}
    assert ClientMetricsStore(store).load() == {name: {"metrics": "*"}}


def test_a_subscription_without_keys_is_none(store: SqliteStore) -> None:
    subscriptions = ClientMetricsStore(store)
    assert subscriptions.load() == {}
    subscriptions.change("a", lambda _: {"metrics": "*"})
    subscriptions.change("b", lambda _: {"metrics": "*", "interval.ms": "1000"})
    subscriptions.change("a", lambda given: {key: given[key] for key in given if key != "metrics"})
    assert subscriptions.load() == {"b": {"metrics": "*", "interval.ms": "1000"}}


def test_a_change_that_is_refused_or_only_checked_leaves_nothing(store: SqliteStore) -> None:
    def refuse(_: object) -> dict[str, str]:
        raise InvalidConfig("no")

    subscriptions = ClientMetricsStore(store)
    with pytest.raises(InvalidConfig):
        subscriptions.change("a", refuse)
    subscriptions.change("a", lambda _: {"metrics": "*"}, validate_only=True)
    assert not store.exists("/config/client-metrics/a")
    assert store.children(CONFIG_CHANGES) == []


@pytest.mark.slow
def test_there_is_a_limit(store: SqliteStore) -> None:
    subscriptions = ClientMetricsStore(store)
    for number in range(MAX_SUBSCRIPTIONS):
        subscriptions.change(str(number), lambda _: {"metrics": "*"})
    with pytest.raises(PolicyViolation, match="limit is 100"):
        subscriptions.change("another", lambda _: {"metrics": "*"})
    subscriptions.change("7", lambda _: {"metrics": "a"})

"""The quotas that apply to a client, and their effect when they are used up."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.base.errors import InvalidRequest, ThrottlingQuotaExceeded, UnsupportedVersion
from sparklog.base.quotas import ClientQuota, QuotaChange, QuotaFilter, QuotaMatch, entity, select
from sparklog.security.quotas import SWEEP_AT, ClientQuotas, QuotaWindows, TokenBucket

pytestmark = pytest.mark.slow

PRECEDENCE: list[dict[str, str | None]] = [
    {"user": "alice", "client-id": "etl"},
    {"user": "alice", "client-id": None},
    {"user": "alice"},
    {"user": None, "client-id": "etl"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "etl"},
    {"client-id": None},
]
"""Kafka's documented order: the first of these that has a quota applies."""
HOUR_S = 3600.0


def quota(parts: Mapping[str, str | None], **values: float) -> ClientQuota:
    return ClientQuota(entity=entity(parts), values=values)


def quotas(*configured: ClientQuota) -> ClientQuotas:
    found = ClientQuotas(QuotaWindows(burst_s=1, mutations_s=11))
    found.set_quotas(configured)
    return found


@pytest.mark.parametrize("first", range(len(PRECEDENCE)))
def test_the_most_specific_quota_applies(first: int) -> None:
    found = quotas(*(quota(parts, producer_byte_rate=100 + at) for at, parts in enumerate(PRECEDENCE) if at >= first))
    bucket = found.client("alice", "etl", HOUR_S).produced
    assert bucket
    assert bucket.rate == 100 + first


def test_each_kind_of_quota_is_looked_for_on_its_own() -> None:
    found = quotas(
        quota({"user": "alice", "client-id": "etl"}, producer_byte_rate=5),
        quota({"user": "alice"}, consumer_byte_rate=7),
    ).client("alice", "etl", HOUR_S)
    assert found.produced
    assert found.fetched
    assert (found.produced.rate, found.fetched.rate) == (5, 7)
    assert found.worked is found.mutated is None


def test_clients_share_the_quota_of_their_user_and_users_do_not_share_a_default() -> None:
    found = quotas(quota({"user": "alice"}, producer_byte_rate=10), quota({"user": None}, producer_byte_rate=10))
    one, other = found.client("alice", "a", HOUR_S), found.client("alice", "b", HOUR_S)
    assert one.produced is other.produced
    bob, carol = found.client("bob", "a", HOUR_S), found.client("carol", "a", HOUR_S)
    assert bob.produced is not carol.produced


def test_a_request_waits_until_the_debt_is_paid() -> None:
    bucket = quotas(quota({"client-id": "etl"}, producer_byte_rate=1000)).client("alice", "etl", HOUR_S).produced
    assert bucket
    bucket.take(1000, HOUR_S)
    assert bucket.wait_s(HOUR_S) == 0
    bucket.take(500, HOUR_S)
    assert bucket.is_low
    assert bucket.wait_s(HOUR_S) == pytest.approx(0.5)
    assert bucket.wait_s(HOUR_S + 0.25) == pytest.approx(0.25)
    assert bucket.wait_s(HOUR_S + 1) == 0


def test_work_is_a_part_of_the_time_and_never_waits_longer_than_a_window() -> None:
    client = quotas(quota({"user": "alice"}, request_percentage=10)).client("alice", "", HOUR_S)
    assert client.worked
    client.worked.take(0.1, HOUR_S)
    assert client.work_wait_s(HOUR_S) == 0
    client.worked.take(0.05, HOUR_S)
    assert client.work_wait_s(HOUR_S) == pytest.approx(0.5)
    client.worked.take(10, HOUR_S)
    assert client.work_wait_s(HOUR_S) == 1


def test_mutations_are_refused_or_delayed_once_the_windows_are_used_up() -> None:
    client = quotas(quota({"user": "alice"}, controller_mutation_rate=2)).client("alice", "", HOUR_S)
    client.mutate(30, HOUR_S, strict=True)  # 22 are there, and the debt of 8 is paid in 4 s
    with pytest.raises(ThrottlingQuotaExceeded, match=r"try again in 4\.0 s"):
        client.mutate(1, HOUR_S, strict=True)
    assert client.mutated
    client.mutate(2, HOUR_S, strict=False)
    assert client.mutated.wait_s(HOUR_S) == pytest.approx(5)
    client.mutate(1, HOUR_S + 6, strict=True)


def test_a_changed_quota_applies_at_once_and_an_unchanged_one_keeps_its_debt() -> None:
    found = quotas(quota({"user": "a"}, producer_byte_rate=10), quota({"user": "b"}, producer_byte_rate=10))

    def wait_s(user: str) -> float:
        bucket = found.client(user, "", HOUR_S).produced
        return bucket.wait_s(HOUR_S) if bucket else 0

    for user in "ab":
        bucket = found.client(user, "", HOUR_S).produced
        assert bucket
        bucket.take(100, HOUR_S)
    generation = found.generation
    found.set_quotas([quota({"user": "a"}, producer_byte_rate=50), quota({"user": "b"}, producer_byte_rate=10)])
    assert found.generation > generation
    assert wait_s("a") == 0
    assert wait_s("b") == pytest.approx(9)
    found.set_quotas([])
    assert not found.has_client_quotas
    assert wait_s("b") == 0


def test_buckets_of_many_client_names_are_dropped() -> None:
    found = quotas(quota({"client-id": None}, producer_byte_rate=1000))
    for number in range(5 * SWEEP_AT):
        bucket = found.client("", f"client-{number}", HOUR_S + number / 100).produced
        assert bucket
        bucket.take(10, HOUR_S + number / 100)
    assert len(found._buckets) < 2 * SWEEP_AT


def test_connections_over_the_rate_of_an_address_wait_and_do_not_count() -> None:
    found = quotas(
        quota({"ip": "10.0.0.7"}, connection_creation_rate=2), quota({"ip": None}, connection_creation_rate=1)
    )
    assert not found.has_client_quotas
    assert [found.connect("10.0.0.7", HOUR_S) for _ in range(3)] == [0, 0, pytest.approx(0.5)]
    assert found.connect("10.0.0.7", HOUR_S) == pytest.approx(0.5)
    assert found.connect("10.0.0.8", HOUR_S) == 0
    assert found.connect("10.0.0.8", HOUR_S) == pytest.approx(1)
    assert found.connect("10.0.0.7", HOUR_S + 0.5) == 0
    assert quotas().connect("10.0.0.7", HOUR_S) == 0


@given(
    st.floats(0.5, 1e6),
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 5)), min_size=1, max_size=100),
)
def test_a_waiting_client_takes_at_most_its_rate_and_one_burst(
    rate: float, requests: list[tuple[float, float]]
) -> None:
    bucket, now, taken, largest = TokenBucket(rate, rate), HOUR_S, 0.0, 0.0
    for amount, pause in requests:
        now += max(pause, bucket.wait_s(now))
        bucket.take(amount, now)
        taken, largest = taken + amount, max(largest, amount)
    assert taken <= (rate * (now - HOUR_S) + rate + largest) * 1.001 + 1e-3


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (QuotaChange(entity=()), "empty"),
        (QuotaChange(entity=entity({"user": ""})), "Empty user"),
        (QuotaChange(entity=entity({"user": "a"}), values={"nonsense": 1}), "Invalid configuration key nonsense"),
        (QuotaChange(entity=entity({"user": "a"}), removed=["connection_creation_rate"]), "Invalid configuration key"),
        (QuotaChange(entity=entity({"ip": "::1"}), values={"producer_byte_rate": 1}), "Invalid configuration key"),
        (QuotaChange(entity=entity({"ip": "host"})), "not a valid IP"),
        (QuotaChange(entity=entity({"ip": "::1", "user": "a"})), "IP"),
        (QuotaChange(entity=entity({"user": "a"}), values={"producer_byte_rate": 0}), "above 0"),
        (QuotaChange(entity=entity({"user": "a"}), values={"request_percentage": float("nan")}), "above 0"),
        (QuotaChange(entity=entity({"user": "a"}), values={"producer_byte_rate": 1.5}), "whole number"),
    ],
)
def test_invalid_quotas_are_refused(change: QuotaChange, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        change.check()


def test_unknown_entity_types_are_refused_as_by_kafka() -> None:
    with pytest.raises(UnsupportedVersion, match="Custom entity type 'group' not supported"):
        QuotaChange(entity=entity({"group": "a"})).check()


def test_filters_select_entities_as_kafkas_do() -> None:
    known = [quota(parts, producer_byte_rate=1) for parts in PRECEDENCE]

    def selected(*filters: QuotaFilter, strict: bool = False) -> list[dict[str, str | None]]:
        return [{part.type: part.name for part in each.entity} for each in select(known, filters, strict=strict)]

    alice = QuotaFilter(type="user", match=QuotaMatch.EXACT, name="alice")
    assert selected(alice, strict=True) == [{"user": "alice"}]
    assert len(selected(alice)) == 3
    assert selected(QuotaFilter(type="user", match=QuotaMatch.DEFAULT), strict=True) == [{"user": None}]
    assert selected(QuotaFilter(type="client-id"), strict=True) == [{"client-id": None}, {"client-id": "etl"}]
    assert len(selected()) == len(PRECEDENCE)
    assert selected(strict=True) == []

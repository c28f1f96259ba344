"""Choice of leaders, for any replicas, ISR and brokers."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.controller.election import (
    choose_for_shutdown,
    choose_offline,
    choose_preferred,
    choose_reassigned,
)

brokers = st.integers(1, 6)
replicas_of = st.lists(brokers, min_size=1, max_size=5, unique=True).map(tuple)
some = st.frozensets(brokers)


@st.composite
def partitions(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Replicas, and the in-sync ones of them in another order."""
    replicas = draw(replicas_of)
    isr = draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True).map(tuple))
    return replicas, isr


@settings(max_examples=25)
@given(partitions(), some, some)
def test_offline_takes_the_first_replica_that_is_online_and_in_sync(
    partition: tuple[tuple[int, ...], tuple[int, ...]], online: frozenset[int], stopping: frozenset[int]
) -> None:
    replicas, isr = partition
    choice = choose_offline(replicas, isr, online, unclean=False, stopping=stopping)

    eligible = [broker for broker in replicas if broker in isr and broker in online]
    assert (choice and choice.leader) == (eligible[0] if eligible else None)
    assert choice is None or choice.isr == tuple(broker for broker in isr if broker in online | stopping)


@settings(max_examples=25)
@given(partitions(), some, some)
def test_unclean_elects_an_out_of_sync_replica_only_without_one_in_sync(
    partition: tuple[tuple[int, ...], tuple[int, ...]], online: frozenset[int], adding: frozenset[int]
) -> None:
    replicas, isr = partition
    clean = choose_offline(replicas, isr, online, unclean=False, adding=adding)
    choice = choose_offline(replicas, isr, online, unclean=True, adding=adding)

    if clean:
        assert choice == clean
    elif present := [broker for broker in replicas if broker in online]:
        first = next((broker for broker in present if broker not in adding), present[0])
        assert choice == (first, (first,))
    else:
        assert choice is None


@settings(max_examples=25)
@given(partitions(), some, replicas_of)
def test_a_reassigned_partition_is_led_by_its_target_and_the_isr_stays(
    partition: tuple[tuple[int, ...], tuple[int, ...]], online: frozenset[int], target: tuple[int, ...]
) -> None:
    _, isr = partition
    choice = choose_reassigned(target, isr, online)

    eligible = [broker for broker in target if broker in isr and broker in online]
    assert choice == ((eligible[0], isr) if eligible else None)


@settings(max_examples=25)
@given(partitions(), some)
def test_the_preferred_leader_is_the_first_replica_or_none(
    partition: tuple[tuple[int, ...], tuple[int, ...]], online: frozenset[int]
) -> None:
    replicas, isr = partition
    choice = choose_preferred(replicas, isr, online)

    assert choice == ((replicas[0], isr) if replicas[0] in isr and replicas[0] in online else None)


@settings(max_examples=25)
@given(partitions(), some, some)
def test_brokers_that_shut_down_neither_lead_nor_stay_in_sync(
    partition: tuple[tuple[int, ...], tuple[int, ...]], online: frozenset[int], shutting_down: frozenset[int]
) -> None:
    replicas, isr = partition
    choice = choose_for_shutdown(replicas, isr, online, shutting_down)

    eligible = [each for each in replicas if each in isr and each in online and each not in shutting_down]
    assert (choice and choice.leader) == (eligible[0] if eligible else None)
    assert choice is None or choice.isr == tuple(each for each in isr if each not in shutting_down)


@settings(max_examples=25)
@given(partitions(), some)
def test_clean_elections_choose_from_the_isr_and_add_none(
    partition: tuple[tuple[int, ...], tuple[int, ...]], online: frozenset[int]
) -> None:
    replicas, isr = partition
    for choice in (
        choose_offline(replicas, isr, online, unclean=False),
        choose_reassigned(replicas, isr, online),
        choose_preferred(replicas, isr, online),
        choose_for_shutdown(replicas, isr, online, ()),
    ):
        assert choice is None or (choice.leader in isr and set(choice.isr) <= set(isr) and choice.leader in choice.isr)

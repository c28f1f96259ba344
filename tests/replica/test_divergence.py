"""A follower's log is truncated to exactly the records that it shares with its leader's."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.base.errors import OffsetOutOfRange
from sparklog.log.epochs import EpochEnd, LeaderEpochs
from sparklog.replica.divergence import find_divergence, where_to_cut

Epochs = list[int]
"""A log: of each record the epoch. Records of two logs are the same if all epochs up to them are."""


def epochs_of(log: Epochs) -> LeaderEpochs:
    found = LeaderEpochs()
    for offset, epoch in enumerate(log):
        found = found.assign(epoch, offset)
    return found


def agree(leader: Epochs, follower: Epochs) -> Epochs:
    """The follower's log once it no longer diverges from the leader's."""
    leader_epoch = max((*leader, *follower), default=0) + 1
    for _ in range(len(follower) + 1):
        found = find_divergence(
            epochs_of(leader).assign(leader_epoch, len(leader)),
            first_offset=0,
            end_offset=len(leader),
            fetch_offset=len(follower),
            last_epoch=follower[-1] if follower else None,
        )
        if found is None:
            return follower
        offset = where_to_cut(epochs_of(follower), len(follower), found)
        assert offset < len(follower), "a cut that cuts nothing would be asked for again and again"
        follower = follower[:offset]
    raise AssertionError("asked too often")


@st.composite
def forked_logs(draw: st.DrawFn) -> tuple[Epochs, Epochs, Epochs]:
    """Two logs and their common records, behind which each has epochs that the other has not."""
    common = sorted(draw(st.lists(st.integers(0, 4), max_size=6)))
    last = common[-1] if common else 0
    later = list(range(last + 1, last + 9))
    mine = draw(st.sets(st.sampled_from(later)))
    leader = sorted(draw(st.lists(st.sampled_from(sorted(mine)), max_size=6))) if mine else []
    others = [each for each in later if each not in mine]
    follower = sorted(draw(st.lists(st.sampled_from(others), max_size=6))) if others else []
    if common and draw(st.booleans()):  # one of them has heard more of the last leader that they had in common
        more = [last] * draw(st.integers(1, 3))
        leader, follower = (more + leader, follower) if draw(st.booleans()) else (leader, more + follower)
    return common + leader, common + follower, common


@pytest.mark.slow  # a hundred drawings of two logs
@given(forked_logs())
def test_truncation_leaves_the_records_that_both_logs_have(logs: tuple[Epochs, Epochs, Epochs]) -> None:
    leader, follower, common = logs
    assert agree(leader, follower) == common


@settings(max_examples=20)
@given(st.lists(st.integers(0, 4), max_size=8).map(sorted), st.integers(0, 8))
def test_a_log_that_is_only_shorter_is_not_cut(leader: Epochs, length: int) -> None:
    assert agree(leader, leader[:length]) == leader[:length]


@pytest.mark.parametrize(
    ("leader", "follower", "common"),
    [
        ([0, 0, 1], [0, 0, 0, 0], [0, 0]),
        ([0, 2, 2, 4], [0, 1, 3, 3, 5], [0]),
        ([0, 1, 1, 1], [0, 1, 2, 3], [0, 1]),
        ([3], [1, 2], []),
        ([], [1, 2], []),
    ],
)
def test_examples_of_what_both_have(leader: Epochs, follower: Epochs, common: Epochs) -> None:
    assert agree(leader, follower) == common


def ask(fetch_offset: int, last_epoch: int | None) -> EpochEnd | None:
    """Return the divergence from a leader with epoch 5 from offset 10 to 20; it leads in epoch 7."""
    epochs = LeaderEpochs().assign(5, 10).assign(7, 20)
    return find_divergence(epochs, first_offset=10, end_offset=20, fetch_offset=fetch_offset, last_epoch=last_epoch)


@pytest.mark.parametrize(("fetch_offset", "last_epoch"), [(0, None), (9, 3), (9, 5), (21, None)])
def test_a_follower_that_cannot_continue_starts_again(fetch_offset: int, last_epoch: int | None) -> None:
    with pytest.raises(OffsetOutOfRange):
        ask(fetch_offset, last_epoch)


@pytest.mark.parametrize(
    ("fetch_offset", "last_epoch", "end"),
    [
        (10, None, None),
        (20, None, None),
        (20, 5, None),
        (15, 6, EpochEnd(5, 20)),
        (25, 5, EpochEnd(5, 20)),
        (25, 8, EpochEnd(7, 20)),
        (15, 3, EpochEnd(3, 10)),
    ],
)
def test_the_response_names_the_divergence(fetch_offset: int, last_epoch: int | None, end: EpochEnd | None) -> None:
    assert ask(fetch_offset, last_epoch) == end

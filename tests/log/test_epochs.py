"""Leader epochs, as LeaderEpochFileCache keeps them."""

from __future__ import annotations

import pytest

from sparklog.log.epochs import UNDEFINED, EpochEnd, EpochStart, LeaderEpochs

EPOCHS = LeaderEpochs((EpochStart(0, 0), EpochStart(3, 120), EpochStart(4, 200)))


def test_an_epoch_begins_once() -> None:
    assert LeaderEpochs().assign(2, 10).entries == (EpochStart(2, 10),)
    assert EPOCHS.assign(4, 300) is EPOCHS
    assert EPOCHS.assign(-1, 300) is EPOCHS
    assert EPOCHS.assign(5, 300).latest == 5


def test_a_new_epoch_takes_the_place_of_what_contradicts_it() -> None:
    assert EPOCHS.assign(5, 150).entries == (EpochStart(0, 0), EpochStart(3, 120), EpochStart(5, 150))
    assert EPOCHS.assign(2, 300).entries == (EpochStart(0, 0), EpochStart(2, 300))


@pytest.mark.parametrize(("end", "latest"), [(201, 4), (200, 3), (121, 3), (120, 0), (1, 0), (0, -1)])
def test_the_end_is_cut_off(end: int, latest: int) -> None:
    assert EPOCHS.truncate_from_end(end).latest == latest


@pytest.mark.parametrize(
    ("start", "entries"),
    [
        (0, ((0, 0), (3, 120), (4, 200))),
        (50, ((0, 50), (3, 120), (4, 200))),
        (120, ((3, 120), (4, 200))),
        (150, ((3, 150), (4, 200))),
        (900, ((4, 900),)),
    ],
)
def test_the_front_is_cut_off_inside_an_epoch(start: int, entries: tuple[tuple[int, int], ...]) -> None:
    assert EPOCHS.truncate_from_start(start).entries == entries


@pytest.mark.parametrize(("offset", "epoch"), [(0, 0), (119, 0), (120, 3), (250, 4)])
def test_a_record_has_the_epoch_that_began_last(offset: int, epoch: int) -> None:
    assert EPOCHS.epoch_at(offset) == epoch


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, UNDEFINED),
        (0, EpochEnd(0, 120)),
        (1, EpochEnd(0, 120)),
        (3, EpochEnd(3, 200)),
        (4, EpochEnd(4, 500)),
        (5, UNDEFINED),
    ],
)
def test_an_epoch_ends_where_the_next_one_begins(asked: int, answer: EpochEnd) -> None:
    assert EPOCHS.end_offset_for(asked, 500) == answer


def test_an_epoch_before_all_ends_where_they_begin() -> None:
    assert EPOCHS.truncate_from_start(150).end_offset_for(1, 500) == EpochEnd(1, 150)

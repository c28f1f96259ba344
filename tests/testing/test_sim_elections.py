"""Up to where the log of a leader that was not in sync has what others have."""

from __future__ import annotations

from sparklog.log.epochs import EpochStart, LeaderEpochs
from sparklog.testing.sim_elections import Ended, kept_end


def log(end: int, *starts: tuple[int, int]) -> Ended:
    return LeaderEpochs(tuple(EpochStart(*each) for each in starts)), end


def test_what_the_leader_lacks_begins_at_its_end() -> None:
    assert kept_end(log(60, (0, 0)), [log(73, (0, 0)), log(50, (0, 0))]) == 60


def test_what_another_epoch_wrote_at_the_same_offsets_is_lacking() -> None:
    assert kept_end(log(60, (0, 0), (1, 44)), [log(73, (0, 0), (1, 44), (3, 58))]) == 58
    assert kept_end(log(60, (0, 0), (1, 44)), [log(44, (0, 0))]) == 60

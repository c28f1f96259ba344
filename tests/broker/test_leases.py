"""Leases: one holder for each log at a time, expiry, and the kept answer of a commit."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sparklog.base.errors import DuplicateResource, ResourceNotFound
from sparklog.broker.leases import ANSWER_KEPT_MS, ANSWERS_KEPT, Lease, Leases
from sparklog.log.description import SegmentDescription
from support.runs.seeds import examples

LOGS = ("orders-0", "orders-1")
HOLDERS = ("run-a", "run-b")
SOURCE = SegmentDescription(
    base_offset=0, next_offset=10, size_bytes=100, largest_timestamp_ms=-1, first_timestamp_ms=-1, identity="one"
)


def lease(lease_id: str, log: str = LOGS[0], holder: str = HOLDERS[0], lease_ms: int = 100) -> Lease[str]:
    return Lease(id=lease_id, log=log, holder=holder, sources=(SOURCE,), lease_ms=lease_ms)


def test_other_holders_are_refused_until_the_lease_ends_or_expires() -> None:
    leases: Leases[str] = Leases()
    leases.begin(lease("1"), 0)
    with pytest.raises(DuplicateResource):
        leases.begin(lease("2", holder="run-b"), 99)
    leases.begin(lease("2", holder="run-b"), 100)
    with pytest.raises(ResourceNotFound):
        leases.get("1", 100)


def test_a_new_lease_of_the_same_holder_replaces_its_old_one() -> None:
    leases: Leases[str] = Leases()
    leases.begin(lease("1"), 0)
    leases.begin(lease("2"), 1)
    with pytest.raises(ResourceNotFound):
        leases.begin_commit("1", 1)
    assert leases.begin_commit("2", 1).is_committing


def test_uploads_and_renewals_renew_a_lease() -> None:
    leases: Leases[str] = Leases()
    leases.begin(lease("1"), 0)
    upload = leases.begin_upload("1", 60).upload
    leases.renew("1", upload, 120)
    assert leases.expired(219) == []
    assert [each.id for each in leases.expired(220)] == ["1"]


def test_of_two_uploads_under_one_lease_the_later_one_counts() -> None:
    leases: Leases[str] = Leases()
    leases.begin(lease("1"), 0)
    first = leases.begin_upload("1", 0).upload
    second = leases.begin_upload("1", 0).upload
    with pytest.raises(ResourceNotFound):
        leases.renew("1", first, 0)
    leases.renew("1", second, 0)


def test_a_committing_lease_refuses_uploads_and_new_leases() -> None:
    leases: Leases[str] = Leases()
    leases.begin(lease("1"), 0)
    upload = leases.begin_upload("1", 0).upload
    leases.begin_commit("1", 0)
    for refused in (
        lambda: leases.renew("1", upload, 0),
        lambda: leases.begin_upload("1", 0),
        lambda: leases.begin_commit("1", 0),
        lambda: leases.begin(lease("2"), 0),
        lambda: leases.begin(lease("2", holder="run-b"), 10_000),
    ):
        with pytest.raises(DuplicateResource):
            refused()
    assert leases.expired(10_000) == []


def test_a_repeated_commit_gets_the_kept_answer() -> None:
    leases: Leases[str] = Leases()
    for number in range(ANSWERS_KEPT + 1):
        leases.begin(lease(str(number)), number)
        leases.begin_commit(str(number), number)
        leases.finish(str(number), SOURCE, number)
    assert leases.answer("0") is None
    assert leases.answer("1") == SOURCE
    leases.expired(ANSWER_KEPT_MS + 1)
    assert leases.answer("1") is None
    assert leases.answer("2") == SOURCE


class LeaseMachine(RuleBasedStateMachine):
    """Leases against a model: one lease for each log, as (id, holder, expiry, uploads, is committing)."""

    @initialize()
    def begin_with_none(self) -> None:
        self.leases: Leases[str] = Leases()
        self.model: dict[str, list] = {}
        self.now = 0
        self.count = 0
        self.done: set[str] = set()

    def entry(self, lease_id: str) -> list | None:
        """Return the model's lease of the log, if it has not expired."""
        for entry in self.model.values():
            if entry[0] == lease_id and (entry[4] or entry[2] > self.now):
                return entry
        return None

    @rule(passed=st.integers(0, 60))
    def time_passes(self, passed: int) -> None:
        self.now += passed

    @rule(log=st.sampled_from(LOGS), holder=st.sampled_from(HOLDERS), lease_ms=st.integers(1, 100))
    def begin(self, log: str, holder: str, lease_ms: int) -> None:
        held = self.model.get(log)
        counts = held is not None and (held[4] or held[2] > self.now)
        is_refused = counts and (held[1] != holder or held[4])
        self.count += 1
        wanted = lease(str(self.count), log, holder, lease_ms)
        if is_refused:
            with pytest.raises(DuplicateResource):
                self.leases.begin(wanted, self.now)
        else:
            self.leases.begin(wanted, self.now)
            self.model[log] = [wanted.id, holder, self.now + lease_ms, 0, False, lease_ms]

    @rule(data=st.data())
    def upload(self, data: st.DataObject) -> None:
        lease_id = self.some_id(data)
        entry = self.entry(lease_id)
        if entry is None or entry[4]:
            with pytest.raises((ResourceNotFound, DuplicateResource)):
                self.leases.begin_upload(lease_id, self.now)
        else:
            assert self.leases.begin_upload(lease_id, self.now).upload == entry[3] + 1
            entry[3] += 1
            entry[2] = self.now + entry[5]

    @rule(data=st.data(), upload=st.integers(0, 3))
    def renew(self, data: st.DataObject, upload: int) -> None:
        lease_id = self.some_id(data)
        entry = self.entry(lease_id)
        if entry is None or entry[4] or entry[3] != upload:
            with pytest.raises((ResourceNotFound, DuplicateResource)):
                self.leases.renew(lease_id, upload, self.now)
        else:
            self.leases.renew(lease_id, upload, self.now)
            entry[2] = self.now + entry[5]

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        lease_id = self.some_id(data)
        entry = self.entry(lease_id)
        if entry is None or entry[4]:
            with pytest.raises((ResourceNotFound, DuplicateResource)):
                self.leases.begin_commit(lease_id, self.now)
        else:
            self.leases.begin_commit(lease_id, self.now)
            entry[4] = True

    @rule(data=st.data(), is_done=st.booleans())
    def end(self, data: st.DataObject, is_done: bool) -> None:
        lease_id = self.some_id(data)
        entry = self.entry(lease_id)
        if is_done and entry and entry[4]:
            self.leases.finish(lease_id, SOURCE, self.now)
            self.done.add(lease_id)
        else:
            self.leases.end(lease_id)
        self.model = {log: held for log, held in self.model.items() if held[0] != lease_id}

    @rule()
    def sweep(self) -> None:
        gone = {each.id for each in self.leases.expired(self.now)}
        assert gone == {held[0] for held in self.model.values() if not held[4] and held[2] <= self.now}
        for lease_id in gone:
            self.leases.end(lease_id)
        self.model = {log: held for log, held in self.model.items() if held[0] not in gone}

    @invariant()
    def one_for_each_log(self) -> None:
        if hasattr(self, "model"):
            assert {each.log: each.id for each in self.leases.all} == {log: held[0] for log, held in self.model.items()}
            assert all(self.leases.answer(lease_id) == SOURCE for lease_id in self.done)

    def some_id(self, data: st.DataObject) -> str:
        return str(data.draw(st.integers(1, max(self.count, 1))))


LeaseMachine.TestCase.settings = settings(max_examples=examples(15), stateful_step_count=25)
TestLeaseMachine = pytest.mark.soak(LeaseMachine.TestCase)

"""An audit's view of a running broker, and the facts that tasks read from its folder and through the broker."""

from __future__ import annotations

import dataclasses
import re

import pytest
from crc32c import crc32c

from sparklog.arrow.filesystems import LogDirOwner
from sparklog.base.errors import ConfigError
from sparklog.client import Admin, Maintenance
from sparklog.records.batch import iterate_headers
from sparklog.spark.audit import broker as audit_broker
from sparklog.spark.audit.broker import BrokerSource
from sparklog.spark.audit.tables import FACTS, WORK, ClusterView, work_rows
from sparklog.spark.audit.tasks import SegmentAccess, scan_row
from support.logs.faulty_replicas import flip, places

pytestmark = pytest.mark.slow


def names_of(schema: str) -> list[str]:
    """The columns of a schema: what follows a type is in angle brackets."""
    while "<" in schema:
        schema = re.sub(r"<[^<>]*>", "", schema)
    return [column.split()[0] for column in schema.split(", ")]


WORK_NAMES, FACT_NAMES = names_of(WORK), names_of(FACTS)


def read(view: ClusterView, through: dict | SegmentAccess) -> list[dict]:
    """The facts of a view. through: options of clients, or all of the access."""
    work = work_rows(view)
    access = through if isinstance(through, SegmentAccess) else SegmentAccess.of(work, through)
    rows = [dict(zip(WORK_NAMES, row, strict=True)) for row in work]
    for row in rows:
        row["epochs"] = [{"epoch": epoch, "start_offset": start} for epoch, start in row["epochs"]]
    return [dict(zip(FACT_NAMES, scan_row(row, access), strict=True)) for row in rows]


@pytest.fixture
def written(topics):
    """A topic of many segments, and the predicate that selects it alone."""
    name = topics.create(internal_segment_bytes=6_000, index_interval_bytes=500)
    topics.fill(name, 2000, batches=40)
    return name


@pytest.mark.parametrize("is_visible", [True, False])
def test_a_broker_tells_of_its_log_and_the_bytes_agree(topics, written, is_visible, monkeypatch):
    if not is_visible:
        monkeypatch.setattr(audit_broker, "belongs_to", lambda *_: False)
    client = {"bootstrap_servers": topics.bootstrap}
    view = BrokerSource(client, lambda topic: topic == written).view()
    topics.fill(written, 500, batches=10)  # after it was told, before it is read

    (replica,) = view.replicas
    assert (replica.is_leader, replica.high_watermark, replica.log_end_offset) == (True, 2000, 2000)
    assert bool(replica.folder) is is_visible
    assert view.store == [(written, 0, replica.broker, replica.leader_epoch, [replica.broker], [replica.broker])]
    assert [folder[:3] for folder in view.folders] == [(replica.broker, written, 0)]
    facts = read(view, client)
    assert len(facts) > 2
    assert [fact["problems"] for fact in facts] == [[]] * len(facts)
    assert facts[-1]["end_offset"] >= 2000

    first = min((topics.broker.data_dir / f"{written}-0").glob("*.log"))
    flip(first, places(first)[1][0] + 90)
    assert [(each["kind"], each["offset"]) for each in read(view, client)[0]["problems"]] == [("corrupt_batch", 50)]


def test_an_executor_that_has_another_broker_s_log_directory_at_the_path_reads_through_the_broker(topics, written):
    client = {"bootstrap_servers": topics.bootstrap}
    view = BrokerSource(client, lambda topic: topic == written).view()
    topics.fill(written, 500, batches=10)  # only the folder has these: a broker sends what it has described
    elsewhere = {str(topics.broker.data_dir): LogDirOwner("another cluster", 77)}

    facts = read(view, SegmentAccess(elsewhere, client))

    assert [fact["problems"] for fact in facts] == [[]] * len(facts)
    assert facts[-1]["end_offset"] == 2000
    with pytest.raises(ConfigError, match=r"the driver sees the log directory .*, but the executor on .* has that of"):
        read(view, SegmentAccess(elsewhere, {}))


def test_a_segment_that_has_been_deleted_since_is_gone_and_not_damaged(topics, written, monkeypatch):
    client = {"bootstrap_servers": topics.bootstrap}
    source = BrokerSource(client, lambda topic: topic == written)
    seen = source.view()
    monkeypatch.setattr(audit_broker, "belongs_to", lambda *_: False)
    unseen = source.view()
    with Admin(**client) as admin:
        admin.delete_topics([written])
    for view in (seen, unseen):
        facts = read(view, client)
        assert all(fact["is_gone"] for fact in facts)
        assert not any(problem["kind"] == "corrupt_batch" for fact in facts for problem in fact["problems"])
    with Maintenance(**client) as maintenance:
        assert written not in {log.partition.topic for log in maintenance.describe_replicas()}


def test_digests_are_made_only_where_there_is_something_to_compare_with(topics, written):
    client = {"bootstrap_servers": topics.bootstrap}
    view = BrokerSource(client, lambda topic: topic == written).view()
    assert not any(fact["slices"] for fact in read(view, client))
    other = dataclasses.replace(view.replicas[0], broker=9)
    twice = read(dataclasses.replace(view, replicas=[*view.replicas, other]), client)
    assert sum(each["batches"] for fact in twice for each in fact["slices"]) == 2 * 40


def test_segments_that_a_cleaner_has_replaced_since_are_others_and_its_gaps_are_no_fault(topics):
    name = topics.create(cleanup_policy="compact", internal_segment_bytes=6_000, index_interval_bytes=500)
    topics.fill(name, 2000, batches=40, key=[f"k{number}" for number in range(2000)])
    client = {"bootstrap_servers": topics.bootstrap}
    source = BrokerSource(client, lambda topic: topic == name)
    before = source.view()
    with Maintenance(**client) as maintenance:
        (log,) = (log for log in maintenance.describe_replicas() if log.partition.topic == name)
        sources = log.closed_segments[:2]
        batches = [batch for segment in sources for batch in split(b"".join(maintenance.read_segment(log, segment)))]
        kept = b"".join(batches[:1] + batches[3:])
        lease = maintenance.begin_replace(log, sources, "a cleaner")
        maintenance.upload(lease, [kept])
        maintenance.commit_replace(lease, log.leader_epoch, len(kept), crc32c(kept))

    after = source.view()
    assert identities(before) - identities(after)
    assert len(identities(after)) == len(identities(before)) - 1
    assert not any(fact["problems"] or fact["is_gone"] for fact in read(after, client))
    changed = {(fact["base_offset"], fact["identity"]) for fact in read(before, client) if fact["problems"]}
    assert not changed & identities(after)


def split(data: bytes) -> list[bytes]:
    return [data[position : position + header.size] for position, header in iterate_headers(data)]


def identities(view: ClusterView) -> set[tuple[int, str]]:
    return {(segment.base_offset, segment.identity) for replica in view.replicas for segment in replica.segments}

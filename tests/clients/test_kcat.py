"""kcat 1.7: metadata, produce with every option that matters, consume from anywhere, a group, offsets by time."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from sparklog.client import Admin
from support import CACHE
from support.names import unique
from support.processes import output
from support.processes.broker import BrokerProcess

KCAT = CACHE / "kcat" / "kcat"
Kcat = Callable[..., str]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not KCAT.exists(), reason="there is no kcat: tests/kafka/fetch-kcat says why"),
]


@pytest.fixture
def kcat(broker: BrokerProcess) -> Kcat:
    """Run kcat with these arguments and this standard input; what it printed."""

    def run(*arguments: str, given: str = "") -> str:
        done = output.run([str(KCAT), "-b", broker.kafka, *arguments], given=given)
        assert done.returncode == 0, f"{done.stderr}\n{broker.log[-5_000:]}"
        return done.stdout

    return run


def test_metadata_names_brokers_topics_and_partitions(kcat: Kcat, broker: BrokerProcess, admin: Admin) -> None:
    name = unique("kcat-metadata")
    admin.create_topic(name, partitions=3)
    shown = json.loads(kcat("-L", "-J", "-t", name))
    assert [each["name"] for each in shown["brokers"]] == [broker.kafka]
    [topic] = shown["topics"]
    assert [each["partition"] for each in topic["partitions"]] == [0, 1, 2]
    assert all(each["isrs"] for each in topic["partitions"])


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_was_produced_is_consumed(kcat: Kcat, codec: str) -> None:
    topic = unique(f"kcat-{codec}")
    lines = [f"key-{number}:value {number} {'x' * 100}" for number in range(1000)]
    kcat("-P", "-t", topic, "-K:", "-z", codec, "-H", "carrier=UA", given="\n".join(lines))
    read = kcat("-C", "-t", topic, "-e", "-q", "-f", "%k:%s %h\\n")
    assert read.splitlines() == [f"{line} carrier=UA" for line in lines]


def test_tombstones_acks_and_idempotence(kcat: Kcat) -> None:
    topic = unique("kcat-acks")
    for number, acks in enumerate(("0", "1", "all")):
        kcat("-P", "-t", topic, "-K:", "-Z", "-X", f"acks={acks}", given=f"{number}:")
    kcat("-P", "-t", topic, "-K:", "-X", "enable.idempotence=true", given="3:last")
    read = [json.loads(line) for line in kcat("-C", "-t", topic, "-e", "-q", "-J").splitlines()]
    assert [(each["key"], each["payload"]) for each in read] == [("0", None), ("1", None), ("2", None), ("3", "last")]


def test_consuming_begins_and_ends_where_it_is_told(kcat: Kcat) -> None:
    topic = unique("kcat-offsets")
    kcat("-P", "-t", topic, given="\n".join(map(str, range(100))))
    read = ("-C", "-t", topic, "-e", "-q")
    assert kcat(*read, "-o", "97").split() == ["97", "98", "99"]
    assert kcat(*read, "-o", "-2").split() == ["98", "99"]
    assert kcat(*read, "-c", "3").split() == ["0", "1", "2"]
    shown = json.loads(kcat("-C", "-t", topic, "-e", "-q", "-J", "-o", "50", "-c", "1"))
    since = kcat("-Q", "-t", f"{topic}:0:{shown['ts']}")
    assert "offset" in since
    assert kcat(*read, "-o", f"s@{shown['ts'] + 100_000_000}") == ""


def test_a_group_goes_on_where_it_stopped(kcat: Kcat) -> None:
    topic = unique("kcat-group")
    kcat("-P", "-t", topic, given="\n".join(map(str, range(10))))
    group = ("-G", unique("kcat-readers"), "-q", "-e", "-X", "auto.offset.reset=earliest", topic)
    assert sorted(map(int, kcat(*group).split())) == list(range(10))
    kcat("-P", "-t", topic, given="10\n11")
    assert sorted(map(int, kcat(*group).split())) == [10, 11]

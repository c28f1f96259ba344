"""The verdict of `sparklog audit`."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

from pyspark.sql import Row

from sparklog.cli.audit import print_verdict

READ = {"replicas": 3, "segments": 9, "batches": 1200, "size_bytes": 5_000_000}


@dataclass
class Rows:
    rows: list[Row]

    def collect(self) -> list[Row]:
        return self.rows


def printed(capsys, *rows: dict) -> list[str]:
    empty = dict.fromkeys(("kind", "broker", "offset", "next_step", *READ))
    print_verdict(SimpleNamespace(rows=Rows([Row(**{**empty, **row}) for row in rows])))
    return capsys.readouterr().out.splitlines()


def fine(topic: str) -> dict:
    return {"topic": topic, "partition": 0, "outcome": "ok", "reason": "nothing found", **READ}


def test_where_nothing_is_found_one_line_says_what_was_read(capsys):
    assert printed(capsys, fine("orders"), fine("payments")) == [
        "nothing found: 2 partitions, 6 replicas, 2,400 batches, 10,000,000 bytes"
    ]


def test_findings_stand_in_a_table_and_each_thing_to_do_once(capsys):
    damage = {"topic": "orders", "partition": 0, "outcome": "critical", "kind": "corrupt_batch", **READ}
    step = "stop broker 2, move the folder orders-0 away"
    lines = printed(
        capsys,
        {**damage, "broker": 2, "offset": 280, "reason": "the CRC is wrong", "next_step": step},
        {**damage, "broker": 2, "offset": 900, "reason": "the CRC is wrong", "next_step": step},
        {
            "topic": None, "partition": None, "outcome": "warning", "kind": "unreadable_file", "broker": 1,
            "reason": "a checkpoint", "next_step": "look at the disk",
        },
        fine("payments"),
    )  # fmt: skip
    assert lines == [
        "SEVERITY  KIND             BROKER  PARTITION  OFFSET  FOUND",
        "critical  corrupt_batch    2       orders-0   280     the CRC is wrong",
        "critical  corrupt_batch    2       orders-0   900     the CRC is wrong",
        "warning   unreadable_file  1       -          -       a checkpoint",
        "",
        "1. corrupt_batch: stop broker 2, move the folder orders-0 away",
        "2. unreadable_file: look at the disk",
        "",
        "2 critical, 1 warning: 2 partitions, 6 replicas, 2,400 batches, 10,000,000 bytes",
    ]

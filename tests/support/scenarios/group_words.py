"""The words of the scenarios: how names and assignments are read, and how what has happened is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from sparklog.base.consumer_protocol import Assignment, read_assignment, write_assignment
from sparklog.base.ids import TopicPartition
from sparklog.offsets_topic.records import GroupKey, GroupValue, OffsetKey, OffsetValue

SUMMARY_FROM = 8  # answers of one kind within a step


def error_name(response: Any) -> str:
    error = getattr(response, "error", None)
    return error.name if error else ""


def summarize(trace: list[tuple[str, str]]) -> Iterator[str]:
    """One line for each, or one for all those of whom the same can be said, where there are many."""
    said = Counter(what for _, what in trace)
    done: set[str] = set()
    for who, what in trace:
        at, _, text = what.partition(" ")
        if said[what] < SUMMARY_FROM:
            yield f"{at} {who}: {text}"
        elif what not in done:
            done.add(what)
            yield f"{at} {said[what]} times: {text}"


def show_record(key: Any, value: Any) -> str:
    match key, value:
        case OffsetKey(), OffsetValue():
            return f"{key.topic}-{key.partition} at {value.offset}"
        case OffsetKey(), None:
            return f"{key.topic}-{key.partition} forgotten"
        case GroupKey(), GroupValue():
            members = ", ".join(f"{each.client_id}={each.assignment.decode()}" for each in value.members[:SUMMARY_FROM])
            return f"group in generation {value.generation}, {len(value.members)} members: {members or 'none'}"
        case GroupKey(), None:
            return "group deleted"
    return repr(key)


def write_work(what: str) -> bytes:
    if "-" not in what:
        return what.encode()
    return write_assignment(Assignment(partitions=[TopicPartition.parse(each) for each in what.split(",")]))


def read_work(assignment: bytes) -> str:
    """What `write_work` has written."""
    if assignment.startswith(b"\0"):
        return show_partitions(read_assignment(assignment).partitions)
    return assignment.decode() or "nothing"


def show_partitions(partitions: Iterable[TopicPartition]) -> str:
    return " ".join(str(each) for each in sorted(partitions)) or "nothing"


def names_of(text: str) -> list[str]:
    """`a`, `a,b`, or `m1..m500`."""
    return [name for part in text.split(",") for name in _range_of(part)]


def _range_of(text: str) -> list[str]:
    first, dots, last = text.partition("..")
    if not dots:
        return [text]
    prefix = first.rstrip("0123456789")
    return [f"{prefix}{number}" for number in range(int(first[len(prefix) :]), int(last[len(prefix) :]) + 1)]

"""The filters of a query on topic, partition, offset and timestamp, as one predicate.

`fold` turns the filters that Spark pushes down (they are AND-ed) into one `Predicate`, and returns the filters that
Spark must still evaluate. Filters on topic, partition and offset are exact: planning leaves out every record that they
exclude. Only IN on offsets becomes the interval around its values. A filter on timestamp only skips data: segments and
batches store their highest timestamp, not that of every record. Spark filters the rest.

Spark pushes filters into a Python source only with ``spark.sql.python.filterPushdown.enabled``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sparklog.base.ids import TopicPartition
from sparklog.spark.spark_api import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

LOWEST = -(2**63)
HIGHEST = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Interval:
    """Whole numbers from `low` to `high`, both included; empty if low > high."""

    low: int = LOWEST
    high: int = HIGHEST

    def __contains__(self, value: int) -> bool:
        return self.low <= value <= self.high

    def meet(self, other: Interval) -> Interval:
        """Return the intersection of both intervals."""
        return Interval(max(self.low, other.low), min(self.high, other.high))


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicate:
    """Conditions that the query's filters set for records."""

    topics: frozenset[str] | None = None
    """None: any."""
    topic_prefixes: tuple[str, ...] = ()
    numbers: frozenset[int] | None = None
    """Partition numbers; None: any."""
    partition: Interval = Interval()
    offset: Interval = Interval()
    timestamp_ms: Interval = Interval()

    def wants(self, partition: TopicPartition) -> bool:
        """Return whether the filters allow any record of the partition."""
        topic, number = partition
        return (
            (self.topics is None or topic in self.topics)
            and all(topic.startswith(prefix) for prefix in self.topic_prefixes)
            and (self.numbers is None or number in self.numbers)
            and number in self.partition
        )


EVERYTHING = Predicate()


def fold(filters: Iterable[Filter]) -> tuple[Predicate, list[Filter]]:
    """Return one predicate for all of `filters`, and the filters that Spark must still evaluate."""
    predicate = EVERYTHING
    remaining = []
    for each in filters:
        narrower, exact = _narrow(predicate, each)
        predicate = narrower
        if not exact:
            remaining.append(each)
    return predicate, remaining


def _narrow(predicate: Predicate, each: Filter) -> tuple[Predicate, bool]:
    """Return `predicate` AND one filter, and whether the result expresses the whole filter."""
    column = getattr(each, "attribute", None)
    if column == ("topic",):
        return _narrow_topic(predicate, each)
    if column == ("partition",):
        return _narrow_partition(predicate, each)
    if column == ("offset",):
        interval, exact = _number_interval(each)
        return replace(predicate, offset=predicate.offset.meet(interval)), exact
    if column == ("timestamp",):
        return replace(predicate, timestamp_ms=predicate.timestamp_ms.meet(_timestamp_interval(each))), False
    return predicate, False


def _narrow_topic(predicate: Predicate, each: Filter) -> tuple[Predicate, bool]:
    match each:
        case IsNotNull():
            return predicate, True
        case StringStartsWith(value=str(prefix)):
            return replace(predicate, topic_prefixes=(*predicate.topic_prefixes, prefix)), True
        case EqualTo(value=str(topic)) | EqualNullSafe(value=str(topic)):
            return replace(predicate, topics=_intersect(predicate.topics, {topic})), True
        case In(value=values) if all(isinstance(value, str) for value in values):
            return replace(predicate, topics=_intersect(predicate.topics, values)), True
    return predicate, False


def _narrow_partition(predicate: Predicate, each: Filter) -> tuple[Predicate, bool]:
    if isinstance(each, In) and _all_whole(each.value):
        return replace(predicate, numbers=_intersect(predicate.numbers, each.value)), True
    interval, exact = _number_interval(each)
    return replace(predicate, partition=predicate.partition.meet(interval)), exact


def _number_interval(each: Filter) -> tuple[Interval, bool]:
    """Return the interval of a filter on a column of whole numbers, and whether it expresses the whole filter."""
    if isinstance(each, IsNotNull):
        return Interval(), True
    if isinstance(each, In) and each.value and _all_whole(each.value):
        return Interval(min(each.value), max(each.value)), False
    value: Any = getattr(each, "value", None)
    if not _all_whole([value]):
        return Interval(), False
    return _comparison_interval(each, value, value), isinstance(each, _COMPARISONS)


def _timestamp_interval(each: Filter) -> Interval:
    """Return the interval, in ms, outside of which a filter on `timestamp` is never true."""
    value = getattr(each, "value", None)
    if not isinstance(value, datetime) or value.tzinfo is None:
        return Interval()
    since = value - _EPOCH
    floor = since // timedelta(milliseconds=1)
    return _comparison_interval(each, floor, floor + bool(since % timedelta(milliseconds=1)))


def _comparison_interval(each: Filter, floor: int, ceiling: int) -> Interval:
    """Return the whole numbers for which a comparison with a value between `floor` and `ceiling` can be true."""
    match each:
        case EqualTo() | EqualNullSafe():
            return Interval(ceiling, floor)
        case GreaterThanOrEqual():
            return Interval(low=ceiling)
        case GreaterThan():
            return Interval(low=floor + 1)
        case LessThanOrEqual():
            return Interval(high=floor)
        case LessThan():
            return Interval(high=ceiling - 1)
    return Interval()


_COMPARISONS = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


def _all_whole(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int) and not isinstance(value, bool) for value in values)


def _intersect(known: frozenset[Any] | None, values: Iterable[Any]) -> frozenset[Any]:
    return frozenset(values) if known is None else known & frozenset(values)

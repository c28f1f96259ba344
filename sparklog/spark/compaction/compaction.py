"""Compaction of many partitions in one Spark job.

    works ──▶ balance           bins of about equal bytes, one task each
          ──▶ compact_in_task   partition by partition: keys into a map, then segments rewritten group by group
          ──▶ by shuffle        partitions with more keys than the map may hold (shuffle.py)

Any error in one partition becomes its outcome; the other partitions of the task go on. If a whole task ends (a worker
is killed), Spark retries it. Segments that the first attempt has replaced do no harm: the retry is refused as stale.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence

from pyspark import Accumulator, SparkContext
from pyspark.sql import SparkSession

from sparklog.spark.compaction.shuffle import compact_by_shuffle
from sparklog.spark.compaction.task import compact_in_task
from sparklog.spark.compaction.work import MB, CompactionOutcome, CompactionSettings, PartitionWork
from sparklog.spark.progress_reports import progress_reports
from sparklog.spark.shipping import task_function

BINS_PER_CORE = 4
"""More bins than cores: while one task takes longer than its bytes suggest, other cores take the remaining tasks."""
TELL_EVERY_S = 2.0


def compact(
    spark: SparkSession,
    works: Sequence[PartitionWork],
    settings: CompactionSettings,
    say: Callable[[str], None] = lambda _: None,
) -> list[CompactionOutcome]:
    """Compact the partitions, and return their outcomes in no order. `say` is called with lines about the progress."""
    if not works:
        return []
    tasks = min(len(works), BINS_PER_CORE * spark.sparkContext.defaultParallelism)
    outcomes = _in_tasks(spark.sparkContext, balance(works, tasks), settings, say)
    by_place = {work.log.partition: work for work in works}
    too_large = [by_place[outcome.place] for outcome in outcomes if outcome.is_too_large]
    if not too_large:
        return outcomes
    say(f"{len(too_large)} partitions have more keys than a task's memory holds: they go by shuffle")
    by_shuffle = compact_by_shuffle(spark, too_large, settings)
    return [outcome for outcome in outcomes if not outcome.is_too_large] + by_shuffle


def balance(works: Iterable[PartitionWork], bins: int) -> list[list[PartitionWork]]:
    """Distribute the works over at most `bins` bins of about equal bytes; return the bins that are not empty.

    The largest work comes first; each work goes to the bin with the fewest bytes so far.
    """
    loads = [(0, number) for number in range(bins)]
    filled: list[list[PartitionWork]] = [[] for _ in range(bins)]
    for work in sorted(works, key=lambda each: each.size_bytes, reverse=True):
        load, number = heapq.heappop(loads)
        filled[number].append(work)
        heapq.heappush(loads, (load + work.size_bytes, number))
    return [each for each in filled if each]


def _in_tasks(
    context: SparkContext,
    bins: Sequence[Sequence[PartitionWork]],
    settings: CompactionSettings,
    say: Callable[[str], None],
) -> list[CompactionOutcome]:
    """Run one task for each bin, and report progress meanwhile."""
    done, done_bytes = context.accumulator(0), context.accumulator(0)
    tasks = context.parallelize(bins, len(bins)).flatMap(task_function(_bin_task(settings, done, done_bytes)))
    total = sum(len(each) for each in bins)

    def describe() -> str:
        count = done.value
        return f"{count} of {total} partitions, {done_bytes.value / MB:,.0f} MB" if count else ""

    with progress_reports(describe, say, TELL_EVERY_S):
        outcomes: list[CompactionOutcome] = tasks.collect()
    return outcomes


def _bin_task(
    settings: CompactionSettings, done: Accumulator[int], done_bytes: Accumulator[int]
) -> Callable[[Sequence[PartitionWork]], Iterator[CompactionOutcome]]:
    def run(works: Sequence[PartitionWork]) -> Iterator[CompactionOutcome]:
        for work, outcome in compact_in_task(works, settings):
            done.add(1)
            done_bytes.add(work.size_bytes)
            yield outcome

    return run

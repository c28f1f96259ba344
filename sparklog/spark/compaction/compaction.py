"""Compaction of many partitions in one Spark job.

    works ──▶ balanced          bins of about as many bytes, a task each
          ──▶ compact_in_task   partition by partition: keys into a map, then group by group the rewriting
          ──▶ by shuffle        those whose keys are more than the map may hold (shuffle.py)

An error in one partition becomes its outcome, whatever it is: the others of its task go on. What ends a whole task
(a worker that is killed) is Spark's to try again; what the first attempt has put in place is then in nobody's way,
because a replaced segment is refused as stale.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from pyspark import Accumulator, SparkContext
from pyspark.sql import SparkSession

from sparklog.spark.compaction.shuffle import compact_by_shuffle
from sparklog.spark.compaction.task import compact_in_task
from sparklog.spark.compaction.work import MB, Outcome, Settings, Work

BINS_PER_CORE = 4
"""So that a task which takes longer than its bytes tell leaves the others to more cores than its own."""
TELL_EVERY_S = 2.0


def compact(
    spark: SparkSession, works: Sequence[Work], settings: Settings, say: Callable[[str], None] = lambda _: None
) -> list[Outcome]:
    """Compact the partitions, and say what became of each, in no order."""
    if not works:
        return []
    tasks = min(len(works), BINS_PER_CORE * spark.sparkContext.defaultParallelism)
    outcomes = _in_tasks(spark.sparkContext, balanced(works, tasks), settings, say)
    by_place = {work.log.partition: work for work in works}
    too_large = [by_place[outcome.place] for outcome in outcomes if outcome.is_too_large]
    if not too_large:
        return outcomes
    say(f"{len(too_large)} partitions have more keys than a task's memory holds: they go by shuffle")
    by_shuffle = compact_by_shuffle(spark, too_large, settings)
    return [outcome for outcome in outcomes if not outcome.is_too_large] + by_shuffle


def balanced(works: Iterable[Work], bins: int) -> list[list[Work]]:
    """The works in at most so many bins of about as many bytes: the largest first, each to the emptiest."""
    loads = [(0, number) for number in range(bins)]
    filled: list[list[Work]] = [[] for _ in range(bins)]
    for work in sorted(works, key=lambda each: each.size_bytes, reverse=True):
        load, number = heapq.heappop(loads)
        filled[number].append(work)
        heapq.heappush(loads, (load + work.size_bytes, number))
    return [each for each in filled if each]


def _in_tasks(
    context: SparkContext, bins: Sequence[Sequence[Work]], settings: Settings, say: Callable[[str], None]
) -> list[Outcome]:
    """The bins, a task for each; how far they have come is told meanwhile."""
    done, done_bytes = context.accumulator(0), context.accumulator(0)
    tasks = context.parallelize(bins, len(bins)).flatMap(_task(settings, done, done_bytes))
    total, told = sum(len(each) for each in bins), 0
    with ThreadPoolExecutor(1, "compaction") as pool:
        collecting = pool.submit(tasks.collect)
        while not collecting.done():
            wait([collecting], TELL_EVERY_S)
            if done.value > told:
                told = done.value
                say(f"{told} of {total} partitions, {done_bytes.value / MB:,.0f} MB")
    outcomes: list[Outcome] = collecting.result()
    return outcomes


def _task(
    settings: Settings, done: Accumulator[int], done_bytes: Accumulator[int]
) -> Callable[[Sequence[Work]], Iterator[Outcome]]:
    def run(works: Sequence[Work]) -> Iterator[Outcome]:
        for work, outcome in compact_in_task(works, settings):
            done.add(1)
            done_bytes.add(work.size_bytes)
            yield outcome

    return run

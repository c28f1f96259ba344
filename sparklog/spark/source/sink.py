"""Exactly-once writes: readers of committed records see each batch once and as a whole, or not at all.

    task      first row ─▶ join ─▶ write in a transaction of its own ─▶ message: the producer id, and its partitions
    driver    commit: one request with the task attempts whose messages Spark passes on
    abort     gives up the batch; the coordinator refuses to abort a committed batch

The rows of one trigger of a stream, or of one batch job, are a batch of a sink (transaction/sink_machine.py). The sink
remembers the last committed batch. Spark may write that batch again, if its driver stopped before it noted the end of
the batch in its checkpoint. The coordinator then answers the tasks that the batch is committed. They still read their
rows, because other parts of the query may depend on that, but send nothing.

    query             sink                       run                 batch
    stream            spark-<query id>           the run's id        the batch's id
    foreachBatch      spark-<query id>-<topic>   the run's id        the batch's id
    txnAppId          spark-app-<app>/<topic>    a new id            txnVersion
    batch job         spark-job-<a new id>       the same id         0

The option `sparkSinkId` takes the place of the topic in `foreachBatch` and with `txnAppId`, and is added to the id of a
stream. Without it, and without the option `topic`, nothing is added. A slash separates application and topic, because
both may have dashes.

The ids of a query are in the properties of its tasks; the query id stays in the checkpoint. With a deleted checkpoint,
the query gets a new id and a new sink. If a user's `sparkSinkId` replaced the id, the new query's batches, from 0 on,
would count as old ones and be skipped. So `sparkSinkId` is added to the id, and does not replace it.

The batch stays open while a task renews it: a thread of each task does so from the time the task has joined.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from pyspark import TaskContext

from sparklog.base.errors import ConfigError, InvalidTxnState, KafkaError, ProducerFenced, RetriableError
from sparklog.client import Producer
from sparklog.client.sinks.sinks import BatchProducer, BatchWinner, SinkBatchId
from sparklog.client.sinks.sync import SinkClient
from sparklog.spark.source.options import WriteOptions

RENEWALS = 3
"""Renewals of a batch within its timeout."""
QUERY_ID, BATCH_ID, RUN_ID = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"
"""The properties of the tasks of a stream."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """A batch of a sink."""

    batch: SinkBatchId
    is_one_off: bool
    """Whether the batch is a batch job: the sink has no other batch."""


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """A task attempt that has joined a batch."""

    producer: Producer
    identity: BatchProducer
    check: Callable[[], None]
    """Raises an error if the batch is no longer open, so that the task can stop early."""


@dataclass(frozen=True, slots=True)
class BatchPart:
    """A task attempt's part of a batch."""

    sink_batch: SinkBatch
    winner: BatchWinner | None
    """None: an earlier run has committed the batch, and the task has sent nothing."""


def job_batch(job_id: UUID, options: WriteOptions) -> SinkBatch:
    """Return the batch of a job outside of a stream, or of a write that its application numbers."""
    if options.transaction is None:
        return SinkBatch(SinkBatchId(f"spark-job-{job_id}", str(job_id), 0), True)
    sink_id = f"spark-app-{options.transaction.app_id}{_suffix('/', options.sink_id or options.topic)}"
    return SinkBatch(SinkBatchId(sink_id, str(job_id), options.transaction.version), False)


def current_batch(options: WriteOptions, job: SinkBatch | None) -> SinkBatch:
    """Return the batch that the running task writes: of its application's write, its query, or its job.

    job: set for a batch writer, whose job is part of a query if it runs in `foreachBatch`

    Raises InvalidTxnState if the task belongs to neither a query nor a job, and ConfigError if the user's code has set
    another job group than the query's.
    """
    context = TaskContext.get()
    query_id, batch_id, run_id = (
        context.getLocalProperty(name) if context else None for name in (QUERY_ID, BATCH_ID, RUN_ID)
    )
    if job is not None and (options.transaction is not None or not query_id):
        return job
    if not (query_id and batch_id and run_id):
        raise InvalidTxnState(f"the task of a stream lacks one of the properties {QUERY_ID}, {BATCH_ID}, {RUN_ID}")
    _check_run_id(run_id)
    suffix = _suffix("-", options.sink_id or (options.topic if job is not None else None))
    return SinkBatch(SinkBatchId(f"spark-{query_id}{suffix}", run_id, int(batch_id)), False)


def _check_run_id(run_id: str) -> None:
    """Raise ConfigError for a job group that is not the query's.

    A group of the user's has the same name in every run. The sink could not tell a batch that is written again after a
    restart from a second write of one run, which it refuses.
    """
    try:
        UUID(run_id)
    except ValueError:
        raise ConfigError(
            f"the job group is {run_id!r}: a write in foreachBatch must run in the query's own job group; "
            "do not call setJobGroup before it"
        ) from None


def _suffix(separator: str, of_write: str | None) -> str:
    return f"{separator}{of_write}" if of_write else ""


@contextmanager
def task_attempt(sink_batch: SinkBatch, options: WriteOptions) -> Iterator[TaskAttempt | None]:
    """Join the batch with the running task attempt; yield the attempt, or None if the batch is committed already.

    Raises ProducerFenced if another run of the query has taken over, InvalidTxnState if the batch is no longer open or
    this run has written it already.
    """
    with SinkClient(**options.connection) as sinks:
        identity = sinks.join(sink_batch.batch, timeout_ms=options.timeout_ms, is_one_off=sink_batch.is_one_off)
        if identity is None:
            logger.warning(
                "batch %d of %s is committed: its rows are skipped", sink_batch.batch.batch_id, sink_batch.batch.sink_id
            )
            yield None
            return
        producer_options = {**options.producer, "transactional_id": sink_batch.batch.sink_id}
        with (
            _renewing(sinks, sink_batch.batch, identity, options.timeout_ms) as check,
            Producer(**producer_options) as producer,
        ):
            producer.enlist(*identity)
            yield TaskAttempt(producer, identity, check)


@contextmanager
def _renewing(
    sinks: SinkClient, batch: SinkBatchId, identity: BatchProducer, timeout_ms: int
) -> Iterator[Callable[[], None]]:
    """Renew the batch inside of the block. Yield a function that raises the error if a renewal was refused."""
    is_over = threading.Event()
    failed: list[KafkaError] = []

    def renew() -> None:
        while not failed and not is_over.wait(timeout_ms / RENEWALS / 1000):
            try:
                sinks.renew(batch, identity, timeout_ms=timeout_ms)
            except RetriableError as error:
                logger.warning("batch %d of %s could not be renewed: %s", batch.batch_id, batch.sink_id, error)
            except KafkaError as error:
                failed.append(error)

    def check() -> None:
        if failed:
            raise failed[0]

    thread = threading.Thread(target=renew, name="sparklog renewals", daemon=True)
    thread.start()
    try:
        yield check
    finally:
        is_over.set()
        thread.join()


def commit(parts: Sequence[BatchPart], options: WriteOptions) -> None:
    """Commit the batch of these parts, and wait until it can be read. Without parts there is nothing to commit.

    Raises InvalidTxnState if the batch was aborted, or was committed for only some of its tasks, and ProducerFenced if
    another run of the query has taken over. After any other error the outcome is unknown; Spark writes the batch again,
    and then the sink tells it.
    """
    if not parts:
        return
    batch = _common_batch(parts)
    winners = [part.winner for part in parts if part.winner is not None]
    if not winners:
        logger.warning(
            "batch %d of %s was committed by an earlier run of the query: nothing was written", batch[2], batch[0]
        )
        return
    if len(winners) < len(parts):
        raise InvalidTxnState(f"batch {batch.batch_id} of {batch.sink_id} was committed while its tasks were running")
    with SinkClient(**options.connection) as sinks:
        sinks.commit(batch, winners)
        try:
            sinks.await_readable(batch)
        except KafkaError as error:  # the batch is committed: Spark must not count it as failed
            logger.warning(
                "batch %d of %s is committed, but not readable yet: %s", batch.batch_id, batch.sink_id, error
            )


def abort(parts: Sequence[BatchPart], options: WriteOptions, job: SinkBatch | None = None) -> None:
    """Abort the batch, unless it is committed. Raises no KafkaError: Spark has an error to report already.

    job: the batch if there are no parts. If all tasks of a stream's trigger have failed, its batch stays open until the
    next run or the batch's timeout.
    """
    if any(part.winner is None for part in parts) or not (parts or job):
        return
    batch = _common_batch(parts) if parts else job.batch if job else None
    assert batch
    try:
        with SinkClient(**options.connection) as sinks:
            sinks.abort(batch)
    except (InvalidTxnState, ProducerFenced) as error:
        logger.warning("batch %d of %s is not aborted: %s", batch.batch_id, batch.sink_id, error)
    except KafkaError as error:
        logger.warning(
            "batch %d of %s could not be aborted, and will be after its timeout: %s", batch[2], batch[0], error
        )


def _common_batch(parts: Sequence[BatchPart]) -> SinkBatchId:
    batches = {part.sink_batch.batch for part in parts}
    if len(batches) > 1:
        raise InvalidTxnState(f"tasks of one commit have written different batches: {sorted(batches)}")
    return batches.pop()

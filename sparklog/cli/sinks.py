"""`sparklog sinks`: list and describe the sinks of Spark queries and jobs, and reset one.

A sink records the last committed batch of its query, so that a batch that Spark repeats is written once. `reset`
deletes this record: it lists the affected batches, and asks first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from sparklog.base.errors import ClientError, ConcurrentTransactions, TransactionalIdNotFound
from sparklog.cli.common import (
    NOTHING,
    PATIENCE_MS,
    bootstrap_option,
    client_options,
    confirmed,
    json_option,
    print_json,
    print_table,
    seconds,
    wall_clock_ms,
)

if TYPE_CHECKING:
    from sparklog.client.sinks.sinks import SinkDescription
    from sparklog.client.sinks.sync import SinkClient

REFUSED = 1
NO_BATCH = -1
ONGOING, PREPARE_COMMIT = "Ongoing", "PrepareCommit"
STATES = (ONGOING, PREPARE_COMMIT, "PrepareAbort", "CompleteCommit", "CompleteAbort")


class RegexParam(click.ParamType[re.Pattern[str]]):
    """A regular expression."""

    name = "regex"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> re.Pattern[str]:
        try:
            return re.compile(value)
        except re.error as error:
            self.fail(f"{value!r} is no regular expression: {error}", param, ctx)


@click.group("sinks")
def command() -> None:
    """List and describe the sinks of Spark queries; reset them.

    \b
      sparklog sinks list
      sparklog sinks list --state Ongoing
      sparklog sinks describe spark-2f0c0c6e-5b0a-4c53-a1f9-8e1f1cf4a2d7
      sparklog sinks reset spark-2f0c0c6e-5b0a-4c53-a1f9-8e1f1cf4a2d7

    A Spark query that writes with deliveryGuarantee = exactly_once has a sink: spark-QUERY ID, or spark-QUERY
    ID-sparkSinkId. Each of its triggers is a batch. The sink remembers the last batch that was committed, and skips
    batches up to it if Spark writes them again. A batch job has a sink of its own, spark-job-ID, which is forgotten
    after a while; if it numbers its writes (txnAppId), they have spark-app-APPLICATION/TOPIC.
    """


@command.command("list")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(STATES, case_sensitive=False), metavar="STATE",
    help="Only sinks in this state; may be repeated.",
)  # fmt: skip
@click.option(
    "--sink-id-pattern", "pattern", type=RegexParam(), metavar="REGEX",
    help="Only sinks that match this regular expression as a whole.",
)  # fmt: skip
@bootstrap_option
@json_option
def list_sinks(states: tuple[str, ...], pattern: re.Pattern[str] | None, bootstrap: str, as_json: bool) -> None:
    """List the sinks of all brokers.

    The states are those of transactions: Ongoing while a batch is written, PrepareCommit and PrepareAbort while it
    ends, CompleteCommit and CompleteAbort after that. COMMITTED is the id of the last batch that was committed.
    """
    with _sinks_client(bootstrap) as sinks:
        listed = [
            each
            for each in sinks.list()
            if (not states or each.state in states) and (pattern is None or pattern.fullmatch(each.sink_id))
        ]
    if as_json:
        for each in listed:
            print_json(
                {
                    "sink_id": each.sink_id,
                    "coordinator": each.coordinator,
                    "state": each.state,
                    "committed_batch_id": _known_batch(each.committed_batch_id),
                    "last_update_ms": each.last_update_ms,
                }
            )
    elif listed:
        now_ms = wall_clock_ms()
        rows = [
            (
                each.sink_id, each.coordinator, each.state, _cell(_known_batch(each.committed_batch_id)),
                seconds(now_ms - each.last_update_ms),
            )
            for each in listed
        ]  # fmt: skip
        print_table(("SINK", "COORDINATOR", "STATE", "COMMITTED", "LAST CHANGE"), rows)
    else:
        which = "these filters leave none" if states or pattern else "a Spark query that writes to a topic makes one"
        click.echo(f"no sinks: {which}", err=True)


@command.command()
@click.argument("ids", metavar="SINK...", nargs=-1, required=True)
@bootstrap_option
@json_option
def describe(ids: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """Describe sinks: the batch that is open, and the last one that was committed.

    BATCH is open or about to end, or was the last one; WRITERS are its task attempts, PARTITIONS what they and those of
    the former batch have written to. RUN has written last, COMMITTED BY is the run that has committed the batch
    COMMITTED. A query has a new run each time it starts.
    """
    with _sinks_client(bootstrap) as sinks:
        described = [sinks.describe(name) for name in ids]
    if as_json:
        for each in described:
            print_json(_described(each))
        return
    titles = (
        "SINK", "STATE", "BATCH", "COMMITTED", "WRITERS", "TIMEOUT", "LAST CHANGE", "RUN", "COMMITTED BY", "PARTITIONS",
    )  # fmt: skip
    now_ms = wall_clock_ms()
    rows = [
        (
            each.sink_id, each.state, _cell(_known_batch(each.batch_id)), _cell(_known_batch(each.committed_batch_id)),
            each.producers, seconds(each.timeout_ms), seconds(now_ms - each.last_update_ms), each.run_id or NOTHING,
            each.committed_run_id or NOTHING, ", ".join(map(str, each.partitions)) or NOTHING,
        )
        for each in described
    ]  # fmt: skip
    print_table(titles, rows)


@command.command()
@click.argument("sink_id", metavar="SINK")
@click.option("--yes", is_flag=True, help="Do not ask.")
@bootstrap_option
def reset(sink_id: str, yes: bool, bootstrap: str) -> int:
    """Forget which batches of a sink were committed; an open batch is aborted.

    Batches up to the last committed one are written again if the query sends them again, beside the records that are
    there already. That is what a query needs whose checkpoint was set back by hand, to write these batches once more:
    without the reset they are skipped. Stop the query first. A query that goes on from its checkpoint needs no reset.
    """
    with _sinks_client(bootstrap) as sinks:
        found = sinks.describe(sink_id)
        if not yes:
            click.echo(_reset_effect(found), err=True)
            if not confirmed(f"forget sink {sink_id}?"):
                click.echo("nothing was reset: answer y, or give --yes", err=True)
                return REFUSED
        try:
            sinks.reset(sink_id)
        except ConcurrentTransactions:
            raise ClientError(
                f"the batch of sink {sink_id} is ending, and the sink is there still: run the command again in a moment"
            ) from None
    last = _last_committed(found)
    means = "it had committed no batch" if last == NO_BATCH else f"batches up to {last} are written again if they come"
    click.echo(f"reset sink {sink_id}: {means}")
    return 0


@contextmanager
def _sinks_client(bootstrap: str) -> Iterator[SinkClient]:
    """Yield a client of sinks that gives up after PATIENCE_MS. The error of an unknown sink has the next step."""
    from sparklog.client.sinks.sync import SinkClient  # loads gRPC, which help does not need

    try:
        with SinkClient(**client_options(bootstrap, default_api_timeout_ms=PATIENCE_MS)) as sinks:
            yield sinks
    except TransactionalIdNotFound as error:
        raise ClientError(f"{error}: see what there is with: sparklog sinks list") from None


def _reset_effect(found: SinkDescription) -> str:
    last = _last_committed(found)
    committed = "has committed no batch"
    if last != NO_BATCH:
        committed = (
            f"has committed batches up to {last}. If its query sends one of them again, it is written again, and "
            "readers see its records twice"
        )
    told = f"sink {found.sink_id} {committed}"
    return f"{told}. Batch {found.batch_id} is open: it is aborted" if found.state == ONGOING else told


def _last_committed(found: SinkDescription) -> int:
    """Return the last batch with a decided commit, whose markers may still be missing."""
    return found.batch_id if found.state == PREPARE_COMMIT else found.committed_batch_id


def _described(found: SinkDescription) -> dict[str, Any]:
    return {
        "sink_id": found.sink_id,
        "state": found.state,
        "batch_id": _known_batch(found.batch_id),
        "run_id": found.run_id or None,
        "committed_batch_id": _known_batch(found.committed_batch_id),
        "committed_run_id": found.committed_run_id or None,
        "last_update_ms": found.last_update_ms,
        "timeout_ms": found.timeout_ms,
        "writers": found.producers,
        "partitions": [str(item) for item in found.partitions],
    }


def _known_batch(number: int) -> int | None:
    return None if number == NO_BATCH else number


def _cell(number: int | None) -> object:
    return NOTHING if number is None else number

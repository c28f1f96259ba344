"""What a second core brings: `sparklog up --brokers 1` and 2, one core each:  python -m bench.cores [--help]

Prebuilt frames of Kafka's protocol go to the leader of each partition, over 4 connections to each broker with 5
requests in flight. Each broker is pinned to a core, the load generator to the last of these: with two cores it shares
one with the second broker, and its CPU time is printed, as it is the brokers' loss. So the rate of a core is what a
request costs all brokers; if that does not grow with the number of brokers, further cores bring as much each.
"""

from __future__ import annotations

import argparse
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from confluent_kafka.admin import AdminClient, NewTopic

from bench.frames import connected
from bench.harness import BrokerProcess
from bench.requests import TIMEOUT_S, WAITS_TO_SEND, Pipelined, answers_within, batch, fetch, produce

CONNECTIONS, IN_FLIGHT = 4, 5
RECORDS = 90
"""In a request, of 100 bytes each."""
MANY_CORES = 16
WARM_UP_S = 0.5
BATCH = batch(RECORDS)
PRODUCE = "Produce of 10 KB"
KINDS: dict[str, Callable[[str, int], bytes]] = {
    PRODUCE: lambda topic, number: produce(topic, range(number, number + 1), BATCH),
    "Fetch of 16 KB": lambda topic, number: fetch(topic, range(number, number + 1), 16 << 10),
}
"""Makes the request for a partition of a topic."""


class Measured(NamedTuple):
    requests_per_s: float
    broker_us: float
    """CPU time of all brokers for a request."""
    client_us: float
    """CPU time of the load generator for a request."""


@contextmanager
def cluster(brokers: int, cores: list[int], *settings: str) -> Iterator[list[BrokerProcess]]:
    """Run brokers, each on one of the cores; the list is in the order of their ids. No cores: wherever they run."""
    command = [sys.executable, "-m", "sparklog.cli.up", "--brokers", str(brokers), "--log-level", "warning"]
    keys = [f"--set={each}" for each in ("default.replication.factor=1", "min.insync.replicas=1", *settings)]
    with tempfile.TemporaryDirectory(prefix="sparklog-bench-") as folder:
        process = subprocess.Popen(
            [*command, *keys, "--data-dir", folder, "--grpc", "127.0.0.1:0", "--kafka", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout
            addresses = re.findall(r"PLAINTEXT://([^,]+)", process.stdout.readline())
            pids = children(process.pid)
            if len(addresses) != brokers or len(pids) != brokers:
                raise RuntimeError("the brokers did not start")
            for pid, core in zip(pids, cores, strict=False):
                pin(pid, core)
            yield [BrokerProcess(pid, "", address) for pid, address in zip(pids, addresses, strict=True)]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(TIMEOUT_S)


def children(parent: int) -> list[int]:
    """Return the broker processes, in the order of their ids."""
    pids = map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())
    found = {}
    for pid in pids:
        if number := re.search(r"broker\.id=(\d+)", Path(f"/proc/{pid}/cmdline").read_text()):
            found[int(number[1])] = pid
    return [found[number] for number in sorted(found)]


def pin(pid: int, core: int) -> None:
    """Pin all threads of a process; those to come inherit it."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), {core})


def make_topic(brokers: list[BrokerProcess]) -> tuple[str, dict[int, BrokerProcess]]:
    """Return a new topic with a partition on each broker, and the leader of each partition."""
    topic = f"cores-{uuid4().hex[:8]}"
    admin: Any = AdminClient({"bootstrap.servers": brokers[0].kafka})
    admin.create_topics([NewTopic(topic, len(brokers), 1)])[topic].result(TIMEOUT_S)
    return topic, leaders_of(brokers, topic)


def leaders_of(brokers: list[BrokerProcess], topic: str) -> dict[int, BrokerProcess]:
    """Return the broker that leads each partition."""
    admin: Any = AdminClient({"bootstrap.servers": brokers[0].kafka})
    known = admin.list_topics(topic, timeout=TIMEOUT_S)
    at = {broker.kafka: broker for broker in brokers}
    leads = {number: known.brokers[part.leader] for number, part in known.topics[topic].partitions.items()}
    return {number: at[f"{leader.host}:{leader.port}"] for number, leader in leads.items()}


def run(leaders: dict[int, BrokerProcess], frame: Callable[[int], bytes], seconds: float) -> Measured:
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for partition, broker in leaders.items():
            for _ in range(CONNECTIONS):
                connection = stack.enter_context(connected(broker))
                selector.register(connection, WAITS_TO_SEND, Pipelined(connection, frame(partition), IN_FLIGHT))
        answers_within(selector, seconds / 5)
        before, client, began = _cpu_seconds(leaders), time.process_time(), time.perf_counter()
        answers = answers_within(selector, seconds)
        took = time.perf_counter() - began
        per_request = 1e6 / answers
        return Measured(
            answers / took,
            (_cpu_seconds(leaders) - before) * per_request,
            (time.process_time() - client) * per_request,
        )


def _cpu_seconds(leaders: dict[int, BrokerProcess]) -> float:
    return sum(broker.cpu_seconds() for broker in leaders.values())


def measure(kind: str, brokers: int, cores: list[int], options: argparse.Namespace) -> float:
    """Print a line, and return the CPU time of the brokers for a request in microseconds."""
    with cluster(brokers, cores) as processes:
        topic, leaders = make_topic(processes)
        run(leaders, partial(KINDS[PRODUCE], topic), WARM_UP_S)
        found = [run(leaders, partial(KINDS[kind], topic), options.seconds) for _ in range(options.rounds)]
    rate, least = max(each.requests_per_s for each in found), min(each.broker_us for each in found)
    client = min(each.client_us for each in found)
    print(
        f"{kind:<24}{brokers:>8}{rate:>12,.0f}{rate * RECORDS:>12,.0f}{least:>11.1f}{client:>11.1f}"
        f"{1e6 / least:>10,.0f}/s",
        flush=True,
    )
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each kind and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--brokers", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[: max(options.brokers)]
    os.sched_setaffinity(0, {cores[-1]})
    print(
        f"{'':<24}{'brokers':>8}{'requests/s':>12}{'records/s':>12}{'broker us':>11}{'client us':>11}{'of a core':>12}"
    )
    for kind in KINDS:
        least = [measure(kind, brokers, cores, options) for brokers in options.brokers][-1]
        print(f"{kind:<24}{MANY_CORES:>8}{MANY_CORES * 1e6 / least:>12,.0f}  (estimate: cores x rate of a core)")


if __name__ == "__main__":
    main()

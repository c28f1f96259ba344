"""Records by the size of a message, over gRPC and over Kafka's protocol:  python -m bench.message_sizes [--help]

One partition, batches that were encoded before, records of 100 bytes, acks=all with one replica. gRPC: ProduceStream
with 16 messages in flight, one client process. Kafka: 4 connections with 4 requests in flight each. "a core" is what
the broker could take if clients used nothing of its core: the records by its CPU time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from multiprocessing.pool import Pool

from bench.harness import BrokerProcess, broker_process
from bench.produce import Work, client, create_topic
from bench.requests import Load, batch, produce, run

RECORDS = (1, 10, 100, 1_000, 8_000)
IN_FLIGHT = 4
TOPIC = "bench"


def over_grpc(broker: BrokerProcess, pool: Pool, records: int, seconds: float) -> tuple[float, float]:
    """Return records/s, and those by the broker's CPU time."""
    work = Work("stream", broker.bootstrap, 0, batch(records), 50, "all")
    began = time.perf_counter()
    pool.apply(client, (work,))
    work = work._replace(requests=max(50, int(50 * seconds / (time.perf_counter() - began))))
    before, began = broker.cpu_seconds(), time.perf_counter()
    pool.apply(client, (work,))
    total = work.requests * records
    return total / (time.perf_counter() - began), total / (broker.cpu_seconds() - before)


def over_kafka(broker: BrokerProcess, records: int, seconds: float) -> tuple[float, float]:
    """Return records/s, and those by the broker's CPU time."""
    frame = produce(TOPIC, range(1), batch(records))
    found = run(broker, Load("", lambda _: frame, IN_FLIGHT, IN_FLIGHT), frame, seconds)
    return found.requests_per_s * records, records / found.cpu_us * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each figure and round")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"{'records in a message':<22}{'gRPC':>13}{'a core':>13}{'Kafka':>15}{'a core':>13}{'ratio':>8}")
    with (
        broker_process("listeners=PLAINTEXT://127.0.0.1:0") as broker,
        multiprocessing.get_context("spawn").Pool(1) as pool,
    ):
        create_topic(broker.bootstrap, 1)
        for records in RECORDS:
            rounds = range(options.rounds)
            grpc = [over_grpc(broker, pool, records, options.seconds) for _ in rounds]
            kafka = [over_kafka(broker, records, options.seconds) for _ in rounds]
            best = [max(values) for found in (grpc, kafka) for values in zip(*found, strict=True)]
            cells = f"{best[0]:>11,.0f}/s{best[1]:>11,.0f}/s{best[2]:>13,.0f}/s{best[3]:>11,.0f}/s"
            print(f"{records:<22,}{cells}{best[1] / best[3]:>8.2f}", flush=True)


if __name__ == "__main__":
    main()

"""Produce throughput and latency over gRPC:  python -m bench.produce [--help]

A broker process and one or more client processes on this machine. The clients send batches that were encoded before, so
that only the broker and gRPC are measured. Lines: stream (ProduceStream, 16 requests in flight) and unary (Produce, one
request at a time), with batches of 16 KiB and 256 KiB.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import time
from collections.abc import AsyncIterator
from typing import NamedTuple

import grpc
import pyarrow as pa

from bench.harness import BrokerProcess, broker_process, report
from sparklog.records.arrow import encode
from sparklog.v1 import admin_pb2, admin_pb2_grpc, log_pb2

WINDOW = 16
RECORD_OVERHEAD = 9  # bytes of a record of a hundred bytes besides its value
OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.http2.lookahead_bytes", 4 << 20),
)
ACKS = {"all": log_pb2.ALL, "1": log_pb2.LEADER, "0": log_pb2.NO_ACKS}


def encoded_batch(record_size: int, batch_bytes: int) -> tuple[bytes, int]:
    """Return a batch of about `batch_bytes` with records of `record_size` bytes without keys, and their number."""
    count = max(1, batch_bytes // (record_size + RECORD_OVERHEAD))
    rows = pa.table({"value": [bytes(record_size)] * count})
    return bytes(encode(rows, default_timestamp_ms=int(time.time() * 1000))), count


class Work(NamedTuple):
    """The work of one client process."""

    mode: str
    bootstrap: str
    partition: int
    batch: bytes
    requests: int
    acks: str


def client(work: Work) -> list[float]:
    """Send requests to one partition; return the seconds that each took."""
    part = log_pb2.PartitionProduce(topic="bench", partition=work.partition, batches=work.batch)
    message = log_pb2.ProduceRequest(acks=ACKS[work.acks], partitions=[part]).SerializeToString()
    run = _stream if work.mode == "stream" else _unary
    return asyncio.run(run(work.bootstrap, message, work.requests))


async def _unary(bootstrap: str, message: bytes, requests: int) -> list[float]:
    latencies = []
    async with grpc.aio.insecure_channel(bootstrap, options=OPTIONS) as channel:
        call = channel.unary_unary("/sparklog.v1.Log/Produce")
        for _ in range(requests):
            started = time.perf_counter()
            _check(await call(message))
            latencies.append(time.perf_counter() - started)
    return latencies


async def _stream(bootstrap: str, message: bytes, requests: int) -> list[float]:
    started: list[float] = []
    latencies: list[float] = []
    window = asyncio.Semaphore(WINDOW)

    async def send() -> AsyncIterator[bytes]:
        for _ in range(requests):
            await window.acquire()
            started.append(time.perf_counter())
            yield message

    async with grpc.aio.insecure_channel(bootstrap, options=OPTIONS) as channel:
        async for answer in channel.stream_stream("/sparklog.v1.Log/ProduceStream")(send()):
            _check(answer)
            latencies.append(time.perf_counter() - started[len(latencies)])
            window.release()
    return latencies


def _check(answer: bytes) -> None:
    response = log_pb2.ProduceResponse.FromString(answer)
    if response.partitions and response.partitions[0].HasField("error"):
        raise RuntimeError(response.partitions[0].error.message)


def create_topic(bootstrap: str, partitions: int) -> None:
    with grpc.insecure_channel(bootstrap) as channel:
        topic = admin_pb2.NewTopic(name="bench", partitions=partitions)
        admin_pb2_grpc.AdminStub(channel).CreateTopics(admin_pb2.CreateTopicsRequest(topics=[topic]))


def measure(broker: BrokerProcess, options: argparse.Namespace, mode: str, batch_bytes: int) -> None:
    batch, count = encoded_batch(options.record_size, batch_bytes)
    requests = max(1, options.records // count // options.clients // (1 if mode == "stream" else 4))
    with multiprocessing.get_context("spawn").Pool(options.clients) as pool:
        work = Work(mode, broker.bootstrap, 0, batch, 10, options.acks)
        pool.map(client, [work] * options.clients, chunksize=1)  # warm-up, not measured
        cpu, started = broker.cpu_seconds(), time.perf_counter()
        jobs = [
            work._replace(partition=number % options.partitions, requests=requests) for number in range(options.clients)
        ]
        latencies = [latency for found in pool.map(client, jobs, chunksize=1) for latency in found]
        seconds = time.perf_counter() - started
    total = requests * options.clients
    report(
        f"{mode}, {batch_bytes >> 10} KiB batches, acks={options.acks}",
        records=total * count,
        size_bytes=total * len(batch),
        requests=total,
        seconds=seconds,
        cpu=broker.cpu_seconds() - cpu,
        latencies=latencies,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Produce throughput and latency over gRPC.")
    parser.add_argument("--records", type=int, default=2_000_000, help="records to send for each stream line")
    parser.add_argument("--record-size", type=int, default=100, help="bytes of each value")
    parser.add_argument("--clients", type=int, default=1, help="client processes")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--acks", choices=ACKS, default="all")
    options = parser.parse_args()
    with broker_process() as broker:
        create_topic(broker.bootstrap, options.partitions)
        for batch_bytes in (16 << 10, 256 << 10):
            for mode in ("stream", "unary"):
                measure(broker, options, mode, batch_bytes)
        print(f"broker memory, peak: {broker.memory_mib():.0f} MiB")


if __name__ == "__main__":
    main()

"""Fetch throughput and latency over gRPC:  python -m bench.fetch [--help]

A broker process has one topic, written before. One client process reads all of it in every way: Fetch and Subscribe
with batches as stored, and Fetch in the formats that the broker decodes for its clients. The last figure is the time
from producing a record to its arrival at a reader that waits for it by long poll.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable

import grpc

from bench.harness import BrokerProcess, broker_process, percentile, report
from bench.produce import OPTIONS, Work, client, create_topic, encoded_batch
from sparklog.v1 import log_pb2, log_pb2_grpc

FORMATS = {"batches": log_pb2.BATCHES, "arrow": log_pb2.ARROW, "records": log_pb2.RECORDS}
PARTITION_MAX_BYTES = 1 << 20


async def fetch_all(log: log_pb2_grpc.LogStub, end: int, form: int) -> list[float]:
    """Read the partition from 0 to `end`; return the seconds that each request took."""
    offset, latencies = 0, []
    while offset < end:
        started = time.perf_counter()
        part = log_pb2.PartitionFetch(
            topic="bench", partition=0, fetch_offset=offset, partition_max_bytes=PARTITION_MAX_BYTES
        )
        response = await log.Fetch(log_pb2.FetchRequest(partitions=[part], format=form, max_wait_ms=1000))
        latencies.append(time.perf_counter() - started)
        if response.partitions[0].HasField("error"):
            raise RuntimeError(response.partitions[0].error.message)
        offset = response.partitions[0].next_offset
    return latencies


async def subscribe_all(log: log_pb2_grpc.LogStub, end: int, form: int) -> list[float]:
    """Read as `fetch_all` does, over one subscription."""
    latencies = []
    part = log_pb2.PartitionFetch(topic="bench", partition=0, partition_max_bytes=PARTITION_MAX_BYTES)
    call = log.Subscribe(log_pb2.SubscribeRequest(partitions=[part], format=form))
    started = time.perf_counter()
    async for response in call:
        latencies.append(time.perf_counter() - started)
        if response.partitions[0].next_offset >= end:
            break
        started = time.perf_counter()
    call.cancel()
    return latencies


Reading = Callable[[log_pb2_grpc.LogStub, int, int], Awaitable[list[float]]]


async def measure(broker: BrokerProcess, name: str, read: Reading, *, end: int, size_bytes: int, form: int) -> None:
    async with grpc.aio.insecure_channel(broker.bootstrap, options=OPTIONS) as channel:
        log = log_pb2_grpc.LogStub(channel)
        await read(log, min(end, 1000), form)  # warm-up, not measured
        cpu, started = broker.cpu_seconds(), time.perf_counter()
        latencies = await read(log, end, form)
        seconds = time.perf_counter() - started
        cpu = broker.cpu_seconds() - cpu
    report(
        name, records=end, size_bytes=size_bytes, requests=len(latencies), seconds=seconds, cpu=cpu, latencies=latencies
    )


async def measure_wake_up(broker: BrokerProcess, end: int, rounds: int) -> None:
    """Measure one record at a time, from just before Produce to its arrival at a reader that waits by long poll."""
    batch, _ = encoded_batch(100, 1)
    message = log_pb2.ProduceRequest(partitions=[log_pb2.PartitionProduce(topic="bench", partition=0, batches=batch)])
    latencies = []
    async with (
        grpc.aio.insecure_channel(broker.bootstrap, options=OPTIONS) as reading,
        grpc.aio.insecure_channel(
            broker.bootstrap, options=(*OPTIONS, ("grpc.use_local_subchannel_pool", 1))
        ) as writing,
    ):
        for offset in range(end, end + rounds):
            part = log_pb2.PartitionFetch(topic="bench", partition=0, fetch_offset=offset)
            waiting = log_pb2_grpc.LogStub(reading).Fetch(
                log_pb2.FetchRequest(partitions=[part], max_wait_ms=10_000, min_bytes=1)
            )
            await asyncio.sleep(0.005)
            started = time.perf_counter()
            produced = log_pb2_grpc.LogStub(writing).Produce(message)
            await waiting
            latencies.append(time.perf_counter() - started)
            await produced
    print(
        f"produce to waiting reader: p50 {percentile(latencies, 0.5) * 1000:.2f} ms, "
        f"p99 {percentile(latencies, 0.99) * 1000:.2f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Fetch throughput and latency over gRPC.")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--record-size", type=int, default=100, help="bytes of each value")
    parser.add_argument("--batch-bytes", type=int, default=16 << 10)
    parser.add_argument("--rounds", type=int, default=300, help="records of the wake-up measurement")
    options = parser.parse_args()
    with broker_process() as broker:
        create_topic(broker.bootstrap, 1)
        batch, count = encoded_batch(options.record_size, options.batch_bytes)
        requests = options.records // count
        client(Work("stream", broker.bootstrap, 0, batch, requests, "all"))
        end, size_bytes = requests * count, requests * len(batch)
        for name, form in FORMATS.items():
            asyncio.run(measure(broker, f"Fetch {name}", fetch_all, end=end, size_bytes=size_bytes, form=form))
        asyncio.run(
            measure(broker, "Subscribe batches", subscribe_all, end=end, size_bytes=size_bytes, form=log_pb2.BATCHES)
        )
        asyncio.run(measure_wake_up(broker, end, options.rounds))
        print(f"broker memory, peak: {broker.memory_mib():.0f} MiB")


if __name__ == "__main__":
    main()

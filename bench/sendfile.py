"""The cost of fetches with sendfile and by copying:  python -m bench.sendfile [--help]

The same log is read over a Kafka listener from two brokers. One sends records from the page cache to the socket with
sendfile; the other reads them into its memory and writes them. One client process reads the bytes without parsing them.
"""

from __future__ import annotations

import argparse
import socket
import struct
import time
from dataclasses import dataclass, field

from bench.harness import BrokerProcess, broker_process, report
from bench.produce import Work, client, create_topic, encoded_batch

FETCH, VERSION = 1, 4
RECORD_BYTES, BATCH_BYTES = 1000, 16 << 10
_HEADER = struct.Struct(">hhihiiiibi")
_TOPIC = struct.Struct(">h5sii")
_PARTITION = struct.Struct(">qi")
_ANSWER = struct.Struct(">iiiih5siihqqii")
"""Fields of an answer: size, correlation id, throttle time, one topic of five letters, one partition, no aborted
transactions, size of the records.
"""


def fetch_frame(offset: int, limit: int) -> bytes:
    """Return a Fetch of partition 0 of the topic "bench"."""
    body = _HEADER.pack(FETCH, VERSION, 1, -1, -1, 1000, 1, limit, 0, 1)
    body += _TOPIC.pack(5, b"bench", 1, 0) + _PARTITION.pack(offset, limit)
    return struct.pack(">i", len(body)) + body


def read_all(address: str, end: int, batch_records: int, batch_bytes: int, limit: int) -> tuple[int, list[float]]:
    """Read the partition from 0 to `end`; return the bytes of records, and the seconds that each request took."""
    host, _, port = address.rpartition(":")
    got, offset, latencies = 0, 0, []
    buffer = memoryview(bytearray(limit + 4096))
    with socket.create_connection((host, int(port))) as connection:
        while offset < end:
            started = time.perf_counter()
            connection.sendall(fetch_frame(offset, limit))
            filled = connection.recv_into(buffer)
            while filled < 4 or filled < 4 + struct.unpack_from(">i", buffer)[0]:
                filled += connection.recv_into(buffer[filled:])
            latencies.append(time.perf_counter() - started)
            size = _ANSWER.unpack_from(buffer)[-1]
            if size < batch_bytes:
                raise RuntimeError(f"a fetch at {offset} of {end} brought {size} bytes")
            got += size
            offset += size // batch_bytes * batch_records
    return got, latencies


@dataclass(slots=True)
class Figures:
    """Cost of reads from one broker."""

    name: str
    broker: BrokerProcess
    size_bytes: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    latencies: list[float] = field(default_factory=list)

    def read(self, end: int, batch_records: int, batch_bytes: int, limit: int) -> None:
        """Read everything once more."""
        cpu, started = self.broker.cpu_seconds(), time.perf_counter()
        size_bytes, latencies = read_all(self.broker.kafka, end, batch_records, batch_bytes, limit)
        self.seconds += time.perf_counter() - started
        self.cpu += self.broker.cpu_seconds() - cpu
        self.size_bytes += size_bytes
        self.latencies += latencies


def measure(brokers: dict[str, BrokerProcess], records: int, limit: int, rounds: int) -> None:
    """Read from each broker in turn, so that other load on the machine affects all alike."""
    batch, count = encoded_batch(RECORD_BYTES, BATCH_BYTES)
    end = records // count * count
    found = [Figures(name, broker) for name, broker in brokers.items()]
    for number in range(rounds + 1):
        for each in found:
            each.read(end, count, len(batch), limit)
        if number == 0:  # warm-up, not measured
            found = [Figures(name, broker) for name, broker in brokers.items()]
    for each in found:
        report(
            f"{each.name}, {limit >> 10} KiB a fetch",
            records=end * rounds,
            size_bytes=each.size_bytes,
            requests=len(each.latencies),
            seconds=each.seconds,
            cpu=each.cpu,
            latencies=each.latencies,
        )
        print(f"{'':<34} {each.cpu / each.size_bytes * 1e9:.3f} broker CPU s per GB")


def main() -> None:
    parser = argparse.ArgumentParser(description="Fetch with sendfile against fetch by copying.")
    parser.add_argument("--records", type=int, default=500_000, help=f"of {RECORD_BYTES} bytes")
    parser.add_argument("--rounds", type=int, default=5, help="how often they are read")
    options = parser.parse_args()
    listener = "listeners=PLAINTEXT://127.0.0.1:0"
    with broker_process(listener) as sending, broker_process(listener, module="bench.copying_broker") as copying:
        brokers = {"sendfile": sending, "copying": copying}
        batch, count = encoded_batch(RECORD_BYTES, BATCH_BYTES)
        for broker in brokers.values():
            create_topic(broker.bootstrap, 1)
            client(Work("stream", broker.bootstrap, 0, batch, options.records // count, "all"))
        for limit in (128 << 10, 1 << 20, 4 << 20):
            measure(brokers, options.records, limit, options.rounds)


if __name__ == "__main__":
    main()

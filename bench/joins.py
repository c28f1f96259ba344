"""What it costs a broker that many members join a group:  python -m bench.joins [--help]

Members of the newer protocol join one after the other on one connection. Members of the classic protocol have a
connection each, and all wait until the group's first generation begins. Each line shows the processor time of the
broker, and how long all joins took. With --kafka HOST:PORT and --kafka-pid PID of an Apache Kafka on this machine, each
line is measured on it too; its group.initial.rebalance.delay.ms should be 3000, as here.
"""

from __future__ import annotations

import argparse
import socket
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from bench.bystander import TIMEOUT_S, frame, read_frame
from bench.harness import BrokerProcess, broker_process
from sparklog.base.consumer_protocol import PROTOCOL_TYPE, Subscription, write_subscription

Address = tuple[str, int]
CONSUMER_GROUP_HEARTBEAT, JOIN_GROUP, CREATE_TOPICS, FIND_COORDINATOR = 68, 11, 19, 10
TOPIC = "joins"
PARTITIONS = 50
SESSION_MS = 60_000
COORDINATOR_S = 5
"""The offsets topic is made and loaded in this time."""


def ask(address: Address, sent: bytes) -> bytes:
    with socket.create_connection(address, TIMEOUT_S) as connection:
        connection.sendall(sent)
        return read_frame(connection)


def prepare(address: Address) -> None:
    topic: dict[str, Any] = {"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": 1}
    topics = [{**topic, "assignments": [], "configs": []}]
    ask(address, frame(CREATE_TOPICS, 4, {"topics": topics, "timeout": 1_000 * TIMEOUT_S, "validate_only": False}))
    for _ in range(2):
        ask(address, frame(FIND_COORDINATOR, 1, {"key": "g", "key_type": 0}))
        time.sleep(COORDINATOR_S)


def join_newer(address: Address, group_id: str, members: int) -> None:
    with socket.create_connection(address, TIMEOUT_S) as connection:
        for _ in range(members):
            fields = {
                "group_id": group_id, "member_id": str(uuid.uuid4()), "member_epoch": 0, "instance_id": None,
                "rack_id": None, "rebalance_timeout": SESSION_MS, "subscribed_topic_names": (TOPIC,),
                "subscribed_topic_regex": None, "server_assignor": None, "topic_partitions": (),
            }  # fmt: skip
            connection.sendall(frame(CONSUMER_GROUP_HEARTBEAT, 1, fields))
            read_frame(connection)


def join_classic(address: Address, group_id: str, members: int) -> None:
    metadata = write_subscription(Subscription(topics=[TOPIC]))
    fields = {
        "group_id": group_id, "session_timeout": SESSION_MS, "rebalance_timeout": SESSION_MS, "member_id": "",
        "protocol_type": PROTOCOL_TYPE, "protocols": [{"name": "range", "metadata": metadata}],
    }  # fmt: skip
    with ExitStack() as stack:
        connections = [stack.enter_context(socket.create_connection(address, TIMEOUT_S)) for _ in range(members)]
        for connection in connections:
            connection.sendall(frame(JOIN_GROUP, 3, fields))
        for connection in connections:
            read_frame(connection)


PROTOCOLS: dict[str, Callable[[Address, str, int], None]] = {"consumer": join_newer, "classic": join_classic}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--protocols", nargs="+", default=list(PROTOCOLS), choices=list(PROTOCOLS))
    parser.add_argument("--members", nargs="+", type=int, default=[500, 1_000, 2_000])
    parser.add_argument("--kafka", metavar="HOST:PORT")
    parser.add_argument("--kafka-pid", type=int)
    options = parser.parse_args()
    with broker_process("listeners=PLAINTEXT://127.0.0.1:0") as broker:
        peers = {"sparklog": (broker, broker.kafka)}
        if options.kafka:
            peers["kafka"] = (BrokerProcess(options.kafka_pid, "", options.kafka), options.kafka)
        addresses = {
            peer: (host, int(port)) for peer, (_, at) in peers.items() for host, _, port in [at.rpartition(":")]
        }
        for address in addresses.values():
            prepare(address)
        for name in options.protocols:
            for members in options.members:
                for peer, (process, _) in peers.items():
                    began, cpu_s = time.perf_counter(), process.cpu_seconds()
                    PROTOCOLS[name](addresses[peer], f"{name}-{members}-{uuid.uuid4()}", members)
                    seconds, cpu_s = time.perf_counter() - began, process.cpu_seconds() - cpu_s
                    print(
                        f"{name:9} {members:6,} members  {peer:9} {cpu_s:6.2f} s of processor time "
                        f"in {seconds:6.2f} s   {process.memory_mib():6.0f} MiB",
                        flush=True,
                    )


if __name__ == "__main__":
    main()

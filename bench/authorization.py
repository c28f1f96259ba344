"""What access rules and quotas cost the broker:  python -m bench.authorization [--help]

Two brokers get the same Produce and Fetch requests over Kafka's protocol in turns, --rounds times; then another pair of
brokers does. One has no authorizer and no quotas. The other has --acls ACLs, of which two let the client write and
read, and quotas of bytes and work for the client, which it never reaches. The broker's CPU time of a request counts,
the least of all rounds: other work on the machine only adds to it. Prebuilt frames go over one connection, five
requests in flight.
"""

from __future__ import annotations

import argparse
import socket

from bench.frames import SIZE, connected, framed
from bench.harness import BrokerProcess, broker_process
from sparklog.base.acls import AclBinding, AclOperation, AclPermission, AclResourceType, PatternType
from sparklog.base.config import STANDARD_AUTHORIZER
from sparklog.base.quotas import QuotaChange, entity
from sparklog.client import Admin
from sparklog.records.records import Record, write_records

TOPIC = "bench"
IN_FLIGHT = 5
PRODUCE, FETCH = (0, 9), (1, 11)
OPEN, RULES = "without rules", "with rules"


def produce_frame(size: int) -> bytes:
    batch = bytes(write_records([Record(offset=0, timestamp_ms=1_700_000_000_000, value=b"v" * size)]))
    topics = [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}]
    return framed(PRODUCE, acks=-1, timeout=1_000, topic_data=topics)


def fetch_frame(size: int) -> bytes:
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": size}
    topics = [{"topic": TOPIC, "partitions": [part]}]
    return framed(FETCH, max_wait=500, min_bytes=1, topics=topics, forgotten_topics_data=[])


def cost_us(broker: BrokerProcess, connection: socket.socket, frame: bytes, requests: int) -> float:
    """Return the broker's CPU time of a request, in microseconds."""
    before = broker.cpu_seconds()
    for sent in range(requests + IN_FLIGHT):
        if sent < requests:
            connection.sendall(frame)
        if sent >= IN_FLIGHT:
            left = SIZE.unpack(connection.recv(SIZE.size, socket.MSG_WAITALL))[0]
            while left:
                left -= len(connection.recv(left))
    return (broker.cpu_seconds() - before) / requests * 1e6


def add_acls(broker: BrokerProcess, count: int) -> None:
    """Create ACLs: the client may write and read, others may read other topics."""

    def acl(name: str, principal: str, operation: AclOperation) -> AclBinding:
        return AclBinding(
            AclResourceType.TOPIC, name, PatternType.PREFIXED, principal, "*", operation, AclPermission.ALLOW
        )

    needed = [acl("ben", "User:ANONYMOUS", each) for each in (AclOperation.WRITE, AclOperation.READ)]
    others = [acl(f"topic-{number}", f"User:{number}", AclOperation.READ) for number in range(count - len(needed))]
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_acls([*needed, *others])


def set_quotas(broker: BrokerProcess) -> None:
    """Set quotas that apply to the client, and never throttle it."""
    values = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12, "request_percentage": 1e6}
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.alter_client_quotas([QuotaChange(entity=entity({"client-id": "bench"}), values=values)])


def measure(arguments: argparse.Namespace, costs: dict[str, dict[str, list[float]]]) -> None:
    """Add the costs in each round, by request and by way, of one pair of brokers."""
    rules = (f"authorizer.class.name={STANDARD_AUTHORIZER}", "allow.everyone.if.no.acl.found=true")
    kafka = "listeners=PLAINTEXT://127.0.0.1:0"
    with broker_process(kafka) as plain, broker_process(kafka, *rules) as ruled:
        for broker in (plain, ruled):
            with Admin(bootstrap_servers=broker.bootstrap) as admin:
                admin.create_topic(TOPIC, partitions=1)
        if arguments.acls:
            add_acls(ruled, arguments.acls)
        if not arguments.no_quotas:
            set_quotas(ruled)
        for title, frame in (("Produce, 1 record", produce_frame(100)), ("Fetch of 16 KiB", fetch_frame(16 << 10))):
            found = costs.setdefault(title, {OPEN: [], RULES: []})
            with connected(plain) as one, connected(ruled) as other:
                ways = ((OPEN, plain, one), (RULES, ruled, other))
                for number in range(arguments.rounds + 1):
                    for name, broker, connection in ways if number % 2 else ways[::-1]:
                        cost = cost_us(broker, connection, frame, arguments.requests)
                        if number:  # the first round fills caches
                            found[name].append(cost)


def main() -> None:
    arguments = parse_arguments()
    costs: dict[str, dict[str, list[float]]] = {}
    for _ in range(arguments.pairs):
        measure(arguments, costs)
    print(f"{'':<22}" + "".join(f"{name:>20}" for name in (OPEN, RULES)) + f"{'more':>10}")
    for title, found in costs.items():
        least = {name: min(each) for name, each in found.items()}
        share = least[RULES] / least[OPEN] - 1
        print(f"{title:<22}" + "".join(f"{cost:>17.1f} us" for cost in least.values()) + f"{share:>10.1%}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--acls", type=int, default=1_000)
    parser.add_argument("--no-quotas", action="store_true", help="only ACLs")
    parser.add_argument("--requests", type=int, default=2_000, help="of a round")
    parser.add_argument("--rounds", type=int, default=20, help="with one pair of brokers")
    parser.add_argument(
        "--pairs", type=int, default=3, help="of brokers; two processes with the same work differ by 5 %%"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""Every method over gRPC: for a client without rights and with exactly the right; both with a certificate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from sparklog.base.acls import (
    AclOperation,
    AclResourceType,
)
from sparklog.base.config import STANDARD_AUTHORIZER
from sparklog.replica.messages import DescribeFiles
from sparklog.security.principal_mapping import PrincipalMapper
from sparklog.server.certificate_names import principal_of_pem
from sparklog.server.grpc.replication import SERVICE as REPLICATION
from sparklog.server.grpc.replication_calls import CALLS
from sparklog.server.grpc.server import ADMIN, GROUPS, LOG, MAINTENANCE, SINKS, TRANSACTIONS
from sparklog.testing import RunningBroker, start_broker
from support import rights
from support.patience import PATIENCE_S
from support.rights import UNAUTHORIZED, Needed, on
from support.rights import on_cluster as cluster

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    AclResourceType.TOPIC,
    AclResourceType.GROUP,
    AclResourceType.CLUSTER,
    AclResourceType.TRANSACTIONAL_ID,
)
Op = AclOperation
T, G, X = "topic", "group", "transactional-id"
FOR_EVERYBODY = {"DescribeCluster"}
RULES = "RULE:^CN=server,.*$/broker/,RULE:^CN=user,.*$/user/"
SERVICES = (LOG, GROUPS, ADMIN, MAINTENANCE, TRANSACTIONS, SINKS)


READ_T, WRITE_T, DESCRIBE_T = (on(each, TOPIC, T) for each in (Op.READ, Op.WRITE, Op.DESCRIBE))
READ_G, WRITE_X, DESCRIBE_X = (
    on(Op.READ, GROUP, G),
    on(Op.WRITE, TRANSACTIONAL_ID, X),
    on(Op.DESCRIBE, TRANSACTIONAL_ID, X),
)
CLUSTER_ACTION = cluster(Op.CLUSTER_ACTION)
PARTITION = {"topic": T, "partition": 0}
RECORDS = {**PARTITION, "records": {"records": [{"value": b"v"}]}}
OFFSETS = {"group_id": G, "offsets": [{**PARTITION, "offset": 0}]}
ACL = {
    "resource_type": 2,
    "name": "x",
    "pattern_type": 3,
    "principal": "User:x",
    "host": "*",
    "operation": 3,
    "permission": 3,
}
REQUESTS: dict[str, tuple[dict[str, Any], Needed]] = {
    "Log.Produce": ({"partitions": [RECORDS]}, WRITE_T),
    "Log.ProduceStream": ({"partitions": [RECORDS]}, WRITE_T),
    "Log.Fetch": ({"partitions": [PARTITION], "min_bytes": 0}, READ_T),
    "Log.Subscribe": ({"partitions": [{"topic": T, "partition": 99}]}, READ_T),
    "Log.ListOffsets": ({"partitions": [{**PARTITION, "latest": True}]}, DESCRIBE_T),
    "Log.InitProducerId": ({"transactional_id": X, "transaction_timeout_ms": 1000}, WRITE_X),
    "Groups.FindCoordinator": ({"group_ids": [G]}, on(Op.DESCRIBE, GROUP, G)),
    "Groups.JoinGroup": (
        {"group_id": G, "session_timeout_ms": 10_000, "protocol_type": "consumer", "protocols": [{"name": "range"}]},
        READ_G,
    ),
    "Groups.SyncGroup": ({"group_id": G, "member_id": "m"}, READ_G),
    "Groups.Heartbeat": ({"group_id": G, "member_id": "m"}, READ_G),
    "Groups.LeaveGroup": ({"group_id": G, "members": [{"member_id": "m"}]}, READ_G),
    "Groups.ConsumerGroupHeartbeat": ({"group_id": G, "member_id": "m", "topics": [T]}, READ_G + DESCRIBE_T),
    "Groups.OffsetCommit": (OFFSETS, READ_G + READ_T),
    "Groups.OffsetFetch": ({"group_id": G, "partitions": [PARTITION]}, on(Op.DESCRIBE, GROUP, G) + DESCRIBE_T),
    "Groups.OffsetDelete": (
        {"group_id": "known", "partitions": [PARTITION]},
        on(Op.DELETE, GROUP, "known") + READ_T,
    ),
    "Groups.ListGroups": ({}, on(Op.DESCRIBE, GROUP, "known")),
    "Groups.DescribeGroups": ({"group_ids": ["known"]}, on(Op.DESCRIBE, GROUP, "known") + DESCRIBE_T),
    "Groups.DeleteGroups": ({"group_ids": [G]}, on(Op.DELETE, GROUP, G)),
    "Admin.CreateTopics": ({"topics": [{"name": "new"}], "validate_only": True}, on(Op.CREATE, TOPIC, "new")),
    "Admin.DeleteTopics": ({"names": ["missing"]}, on(Op.DELETE, TOPIC, "missing")),
    "Admin.ListTopics": ({}, DESCRIBE_T),
    "Admin.DescribeTopics": ({"names": [T]}, DESCRIBE_T),
    "Admin.CreatePartitions": ({"topics": [{"name": T, "total": 1}]}, on(Op.ALTER, TOPIC, T)),
    "Admin.DescribeConfigs": ({"resources": [{"name": T}]}, on(Op.DESCRIBE_CONFIGS, TOPIC, T)),
    "Admin.AlterConfigs": ({"changes": [{"resource": {"name": T}}]}, on(Op.ALTER_CONFIGS, TOPIC, T)),
    "Admin.DeleteRecords": ({"partitions": [{**PARTITION, "before_offset": 0}]}, on(Op.DELETE, TOPIC, T)),
    "Admin.DescribeLogDirs": ({}, cluster(Op.DESCRIBE)),
    "Admin.AlterReplicaLogDirs": ({"replicas": [{**PARTITION, "path": "/nowhere"}]}, cluster(Op.ALTER)),
    "Admin.AlterPartitionReassignments": ({"partitions": [PARTITION]}, cluster(Op.ALTER)),
    "Admin.ListPartitionReassignments": ({}, cluster(Op.DESCRIBE)),
    "Admin.ElectLeaders": ({"partitions": [PARTITION]}, cluster(Op.ALTER)),
    "Admin.DescribeAcls": ({}, cluster(Op.DESCRIBE)),
    "Admin.DescribeClientQuotas": ({}, cluster(Op.DESCRIBE_CONFIGS)),
    "Admin.AlterClientQuotas": ({"changes": [{"entity": [{"type": "user", "name": "x"}]}]}, cluster(Op.ALTER_CONFIGS)),
    "Admin.CreateAcls": ({"acls": [ACL]}, cluster(Op.ALTER)),
    "Admin.DeleteAcls": ({"filters": [{"name": "x"}]}, cluster(Op.ALTER)),
    "Maintenance.DescribeLog": ({"partitions": [PARTITION]}, READ_T),
    "Maintenance.ReadSegment": (PARTITION, READ_T),
    "Maintenance.BeginReplace": (PARTITION, CLUSTER_ACTION),
    "Maintenance.UploadSegment": ({"lease_id": "none"}, CLUSTER_ACTION),
    "Maintenance.CommitReplace": ({"lease_id": "none"}, CLUSTER_ACTION),
    "Maintenance.AbortReplace": ({"lease_id": "none"}, CLUSTER_ACTION),
    "Maintenance.SetCleanedOffset": (PARTITION, CLUSTER_ACTION),
    "Maintenance.InstallSnapshot": (PARTITION, CLUSTER_ACTION),
    "Maintenance.NoteJobRun": ({"job": "compaction", "run_id": "1"}, CLUSTER_ACTION),
    "Transactions.FindCoordinator": ({"transactional_ids": [X]}, DESCRIBE_X),
    "Transactions.EndTxn": ({"transactional_id": X}, WRITE_X),
    "Transactions.TxnOffsetCommit": ({**OFFSETS, "transactional_id": X}, WRITE_X + READ_G + READ_T),
    "Transactions.ListTransactions": ({}, on(Op.DESCRIBE, TRANSACTIONAL_ID, "open")),
    "Transactions.DescribeTransactions": ({"transactional_ids": [X]}, DESCRIBE_X),
    "Transactions.DescribeProducers": ({"partitions": [PARTITION]}, READ_T),
    "Transactions.AbortTransaction": (PARTITION, CLUSTER_ACTION),
    "Sinks.JoinBatch": ({"sink_id": X, "run_id": "r", "timeout_ms": 1000}, WRITE_X),
    "Sinks.CommitBatch": (
        {"sink_id": X, "run_id": "r", "winners": [{"producer_id": 1, "topics": [{"topic": T, "partitions": [0]}]}]},
        WRITE_X + WRITE_T,
    ),
    "Sinks.AbortBatch": ({"sink_id": X, "run_id": "r"}, WRITE_X),
    "Sinks.ListSinks": ({}, on(Op.DESCRIBE, TRANSACTIONAL_ID, "sink")),
    "Sinks.DescribeSinks": ({"sink_ids": [X]}, DESCRIBE_X),
    "Sinks.ResetSink": ({"sink_id": X}, WRITE_X),
}
"""Fields of a request that needs each of the rights, by service and method."""
SHOWN = {
    "Groups.ListGroups": "groups",
    "Admin.ListTopics": "topics",
    "Transactions.ListTransactions": "transactions",
    "Sinks.ListSinks": "sinks",
}
"""Methods that answer without what the client may not see, and the field that has the rest."""
METHODS = {f"{service.name}.{method.name}": method for service in SERVICES for method in service.methods}


class Client:
    """A channel of one user."""

    def __init__(self, broker: RunningBroker, keys: Path, user: str) -> None:
        pem = (keys / f"{user}.pem").read_bytes()
        credentials = grpc.ssl_channel_credentials((keys / "ca.pem").read_bytes(), pem, pem)
        self.channel = grpc.secure_channel(broker.bootstrap, credentials)

    def call(self, name: str, fields: dict[str, Any]) -> Any:
        """The response, or the number of Kafka's error at the end of the call."""
        method = METHODS[name]
        path = f"/{method.containing_service.full_name}/{method.name}"
        request = method.input_type._concrete_class(**fields)
        answer = {"response_deserializer": method.output_type._concrete_class.FromString}
        encode = {"request_serializer": type(request).SerializeToString}
        try:
            if method.client_streaming:
                return next(self.channel.stream_stream(path, **encode, **answer)(iter([request]), timeout=PATIENCE_S))
            if method.server_streaming:
                return next(self.channel.unary_stream(path, **encode, **answer)(request, timeout=PATIENCE_S), None)
            return self.channel.unary_unary(path, **encode, **answer)(request, timeout=PATIENCE_S)
        except grpc.RpcError as error:
            return code_of(error)


def code_of(error: grpc.RpcError) -> int:
    [code] = [int(value) for key, value in error.trailing_metadata() if key == "error-code"]
    return code


def codes(message: Any) -> set[int]:
    """All error codes of a response."""
    found = {message.code} if message.DESCRIPTOR.name == "Error" else set()
    for field, value in message.ListFields():
        if field.message_type and not field.message_type.GetOptions().map_entry:
            for each in value if field.is_repeated else (value,):
                found |= codes(each)
    return found


def is_refused(name: str, response: Any) -> bool:
    if isinstance(response, int):
        return response in UNAUTHORIZED
    if field := SHOWN.get(name):
        return not getattr(response, field)
    return response is not None and bool(codes(response) & UNAUTHORIZED)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    for name in ("server", "user", "stranger"):
        certificate = authority.issue_cert("localhost", "127.0.0.1", common_name=name)
        certificate.private_key_and_cert_chain_pem.write_to_path(folder / f"{name}.pem")
        certificate.cert_chain_pems[0].write_to_path(folder / f"{name}.crt")
    return folder


@pytest.fixture(scope="module")
def authorizing(keys: Path) -> Iterator[RunningBroker]:
    with start_broker(
        grpc_security_protocol="SSL",
        ssl_principal_mapping_rules=RULES,
        ssl_keystore_location=str(keys / "server.pem"),
        ssl_truststore_location=str(keys / "ca.pem"),
        ssl_client_auth="required",
        authorizer_class_name=STANDARD_AUTHORIZER,
        super_users=principal(keys, "server"),
        group_initial_rebalance_delay_ms=0,
        group_consumer_session_timeout_ms=600_000,  # the member of `known` sends no heartbeats
        auto_create_topics_enable=False,
    ) as broker:
        server = Client(broker, keys, "server")
        assert not codes(server.call("Admin.CreateTopics", {"topics": [{"name": T}]}))
        until_done(server, "Groups.ConsumerGroupHeartbeat", {"group_id": "known", "member_id": "m", "topics": [T]})
        until_done(server, "Log.InitProducerId", {"transactional_id": "open", "transaction_timeout_ms": 60_000})
        until_done(server, "Sinks.JoinBatch", {"sink_id": "sink", "run_id": "r", "timeout_ms": 60_000})
        yield broker


def until_done(client: Client, name: str, fields: dict[str, Any]) -> None:
    while isinstance(answer := client.call(name, fields), int) or codes(answer):
        client.call("Groups.FindCoordinator", {"group_ids": ["known"]})
        client.call("Transactions.FindCoordinator", {"transactional_ids": ["open"]})


@pytest.fixture(scope="module")
def user(authorizing: RunningBroker, keys: Path) -> Client:
    return Client(authorizing, keys, "user")


def principal(keys: Path, user: str) -> str:
    return principal_of_pem((keys / f"{user}.crt").read_bytes(), PrincipalMapper(RULES))


def allow(broker: RunningBroker, keys: Path, needed: Needed) -> None:
    """Allow the client with user.pem the needed operations, and no others."""
    rights.allow(broker, principal(keys, "user"), needed)


def refusals(broker: RunningBroker) -> int:
    """Number of requests that the broker's metrics count as refused."""
    return sum(figures.refused for figures in broker.node.broker.metrics.requests.values())


def test_every_method_is_tried() -> None:
    assert {*REQUESTS, *(f"Admin.{name}" for name in FOR_EVERYBODY)} == {*METHODS}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_client_needs_each_of_the_rights(authorizing: RunningBroker, user: Client, keys: Path, name: str) -> None:
    fields, needed = REQUESTS[name]
    for number, right in enumerate(needed):
        allow(authorizing, keys, needed[:number] + needed[number + 1 :])
        before = refusals(authorizing)
        assert is_refused(name, user.call(name, fields)), f"without {right}"
        assert refusals(authorizing) == before + (name not in SHOWN), f"without {right}"
    allow(authorizing, keys, needed)
    assert not is_refused(name, user.call(name, fields))


def test_only_who_may_act_on_the_cluster_speaks_as_a_broker(
    authorizing: RunningBroker, user: Client, keys: Path
) -> None:
    [call] = [each for each in CALLS if each.request is DescribeFiles]
    ask = user.channel.unary_unary(f"/{REPLICATION}/{call.method}")
    for needed, is_let_in in (((), False), (CLUSTER_ACTION, True)):
        allow(authorizing, keys, needed)
        with pytest.raises(grpc.RpcError) as failure:
            ask(b"", timeout=PATIENCE_S)
        assert (code_of(failure.value) != 31) is is_let_in


def test_a_client_without_a_rule_for_its_certificate_is_not_served(authorizing: RunningBroker, keys: Path) -> None:
    assert Client(authorizing, keys, "stranger").call("Admin.ListTopics", {}) == 58


def test_refusals_have_the_status_that_grpc_has_for_them(authorizing: RunningBroker, user: Client, keys: Path) -> None:
    allow(authorizing, keys, ())
    list_acls = user.channel.unary_unary(f"/{ADMIN.full_name}/DescribeAcls")
    with pytest.raises(grpc.RpcError) as failure:
        list_acls(b"", timeout=PATIENCE_S)
    assert failure.value.code() is grpc.StatusCode.PERMISSION_DENIED

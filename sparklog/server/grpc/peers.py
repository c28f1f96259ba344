"""Calls to other brokers over gRPC (cluster/peers.py): one channel per broker, with TLS if the listeners use it.

A thread encodes large requests and decodes large answers, except those of followers' fetches: their records are neither
encoded nor decoded.

gRPC reconnects by itself, quickly at first and then at least once a second. Meanwhile a call fails at once, and its
caller retries. Every call has a deadline, which limits the cost of a broker that hangs.

With grpc.security.protocol = SSL, a broker presents the certificate of its own listener and trusts the authorities of
ssl.truststore.location, or public authorities without a truststore. With SASL_PLAINTEXT or SASL_SSL it sends the
username and the password of plain.sasl.jaas.config, as Kafka's brokers do. A change of either applies to the next call:
a channel with an outdated certificate is replaced, and its calls may end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import grpc
import grpc.aio

from sparklog.base.errors import (
    KafkaError,
    NetworkException,
    RequestTimedOut,
    UnknownServerError,
    UnsupportedVersion,
    error_for,
)
from sparklog.cluster.messages import UpdateMetadata
from sparklog.cluster.model import BrokerInfo
from sparklog.runtime.slices import Slices
from sparklog.server.grpc.errors import ERROR_CODE
from sparklog.server.grpc.replication import QUESTIONS, SERVICE
from sparklog.server.grpc.replication_calls import CALLS, ReplicationCall
from sparklog.server.grpc.service import LARGE_ELEMENTS, SMALL_BYTES, is_large
from sparklog.server.security import ListenerSecurity

logger = logging.getLogger(__name__)
RECONNECT_MS, RECONNECT_MAX_MS = 50, 1_000
CONNECT_TIMEOUT_MS = 5_000
REPLACED_GRACE_S = 30.0
"""Time until the calls of a channel with an outdated certificate are cancelled."""
_CALLS: Mapping[type, ReplicationCall] = MappingProxyType({call.request: call for call in CALLS})
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),  # a fetch limits its own answer
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", RECONNECT_MS),
    ("grpc.max_reconnect_backoff_ms", RECONNECT_MAX_MS),
    ("grpc.min_reconnect_backoff_ms", CONNECT_TIMEOUT_MS),  # despite its name, the connection timeout
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)


class _PeerChannel(NamedTuple):
    address: str
    credentials: Any
    """TLS credentials; None without TLS."""
    channel: grpc.aio.Channel
    methods: dict[type, Any]


class GrpcPeers:
    """Implements Peers. Create and use it on one event loop."""

    def __init__(self, security: ListenerSecurity) -> None:
        self._security = security
        self._channels: dict[int, _PeerChannel] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._slices = Slices()

    async def call(self, broker: BrokerInfo, request: Any, *, timeout_ms: int) -> Any:
        call = _CALLS[type(request)]
        encode = partial(call.encode_request, request)
        data = await self._slices.in_thread(encode) if _is_large(request) else encode()
        if self._is_closed:
            raise NetworkException("this broker is stopping")
        peer = await self._channel_of(broker)
        try:
            users = self._security.users
            answer = await peer.methods[call.request](
                data,
                timeout=max(timeout_ms, 1) / 1000,
                wait_for_ready=False,
                metadata=users.authorization if users else (),
            )
        except grpc.aio.AioRpcError as failure:
            raise _error_of(failure, broker) from None
        except (asyncio.CancelledError, grpc.aio.UsageError):
            if self._channels.get(broker.broker_id) is peer or _is_cancelled():
                raise
            # Closing a channel cancels its calls.
            raise NetworkException(f"the connection to broker {broker.broker_id} was closed") from None
        if len(answer) > SMALL_BYTES and call.request not in QUESTIONS:
            return await self._slices.in_thread(partial(call.decode_response, answer))
        return call.decode_response(answer)

    async def close(self) -> None:
        self._is_closed = True
        peers = list(self._channels.values())
        self._channels.clear()
        for closing in self._closing:
            closing.cancel()
        for peer in peers:
            await peer.channel.close()

    async def _channel_of(self, broker: BrokerInfo) -> _PeerChannel:
        """Return the broker's channel; a new one if its address or this broker's certificate has changed."""
        old = self._channels.get(broker.broker_id)
        credentials = self._security.tls.current.grpc_peers if self._security.tls else None
        if old and old.address == broker.grpc_address and old.credentials is credentials:
            return old
        channel = _open(broker.grpc_address, credentials)
        methods = {call.request: channel.unary_unary(f"/{SERVICE}/{call.method}") for call in CALLS}
        peer = self._channels[broker.broker_id] = _PeerChannel(broker.grpc_address, credentials, channel, methods)
        if old and old.address == broker.grpc_address:
            closing = asyncio.create_task(old.channel.close(REPLACED_GRACE_S))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        elif old:
            await old.channel.close()
        return peer


def _open(address: str, credentials: Any) -> grpc.aio.Channel:
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=_OPTIONS)
    return grpc.aio.secure_channel(address, credentials, options=_OPTIONS)


def _is_large(request: Any) -> bool:
    """Return whether a thread should encode the request, because it has many partitions."""
    if isinstance(request, UpdateMetadata) and sum(len(topic.partitions) for topic in request.topics) > LARGE_ELEMENTS:
        return True
    return is_large(request)


def _is_cancelled() -> bool:
    """Whether the current task is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _error_of(failure: grpc.aio.AioRpcError, broker: BrokerInfo) -> KafkaError:
    where = f"broker {broker.broker_id} at {broker.grpc_address}"
    details = failure.details() or failure.code().name
    match failure.code():
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:  # the broker is stopping or unreachable
            return NetworkException(f"{where}: {details}")
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return RequestTimedOut(f"{where}: no answer in time")
        case grpc.StatusCode.UNIMPLEMENTED:
            return UnsupportedVersion(f"{where}: {details}")
    code = dict(failure.trailing_metadata() or ()).get(ERROR_CODE)
    if code is None:
        return UnknownServerError(f"{where}: {details}")
    return error_for(int(code), f"{where}: {details.partition(': ')[2]}")

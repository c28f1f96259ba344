"""gRPC channels to brokers, and the translation of gRPC's failures to Kafka errors.

There is one `Connection` per address, opened on first use and kept until the client closes. gRPC itself reconnects when
a broker comes back. Every call has a deadline.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import grpc
import grpc.aio

from sparklog.base.errors import (
    ClosedError,
    ConfigError,
    InvalidRequest,
    KafkaError,
    NetworkException,
    RecordListTooLarge,
    RequestTimedOut,
    SaslAuthenticationFailed,
    ThrottlingQuotaExceeded,
    UnknownServerError,
    UnsupportedVersion,
    error_for,
)
from sparklog.base.jaas import PLAIN_MODULE, SCRAM_MODULE, basic_authorization, parse_login
from sparklog.base.message_mapping import read_error
from sparklog.base.pem import read_keystore_for_grpc, read_pem
from sparklog.client.config import ClientConfig
from sparklog.v1.admin_pb2_grpc import AdminStub
from sparklog.v1.groups_pb2_grpc import GroupsStub
from sparklog.v1.log_pb2_grpc import LogStub
from sparklog.v1.maintenance_pb2_grpc import MaintenanceStub
from sparklog.v1.sinks_pb2_grpc import SinksStub
from sparklog.v1.transactions_pb2_grpc import TransactionsStub

if TYPE_CHECKING:
    from sparklog.client.tokens import TokenSource

T = TypeVar("T")
Metadata = tuple[tuple[str, str], ...]

ERROR_CODE = "error-code"
"""Trailing metadata of a refused call: the number of the Kafka error."""
_ERRORS_OF_STATUS: dict[grpc.StatusCode, type[KafkaError]] = {
    grpc.StatusCode.UNAVAILABLE: NetworkException,
    grpc.StatusCode.CANCELLED: NetworkException,
    grpc.StatusCode.DEADLINE_EXCEEDED: RequestTimedOut,
    grpc.StatusCode.RESOURCE_EXHAUSTED: RecordListTooLarge,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.UNIMPLEMENTED: UnsupportedVersion,
}


_MEANINGS = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not accepted",
    "WRONG_VERSION_NUMBER": "no TLS: what listens there does not speak it",
    "Domain name not found": "no address is known for this host name",
    "Socket closed": "Socket closed: it has gone, or what listens there is no gRPC, or wants TLS",
}
"""Parts of gRPC's messages about failed connections, and their meaning for users."""


class CallCredentials:
    """The metadata of each call of one client: its client id and its credentials. Used on one event loop."""

    def __init__(self, config: ClientConfig) -> None:
        """Raises ConfigError if the security protocol needs a user or token and there is none."""
        self._metadata: Metadata = (("client-id", config.client_id),) if config.client_id else ()
        self._tokens: TokenSource | None = None
        if not config.security_protocol.startswith("SASL_"):
            return
        if config.sasl_mechanism == "OAUTHBEARER":
            # Imported only if needed: Python's HTTP client takes longer to import than this module.
            self._tokens = importlib.import_module("sparklog.client.tokens").TokenSource(config)
            return
        login = parse_login("sasl_jaas_config", config.sasl_jaas_config, PLAIN_MODULE, SCRAM_MODULE)
        user = login.option("username")
        if not user:
            raise ConfigError("sasl_jaas_config: it has no username")
        self._metadata += (basic_authorization(user, login.option("password")),)

    async def metadata(self) -> Metadata:
        """Return the metadata of a call. Raises a KafkaError if no token can be obtained."""
        if self._tokens is None:
            return self._metadata
        return (*self._metadata, ("authorization", f"Bearer {await self._tokens.get()}"))

    def refused(self) -> None:
        """Note that a broker has refused the credentials: the next call gets a new token."""
        if self._tokens:
            self._tokens.refused()


class OpenChannel(Protocol):
    """Opens a channel to an address: gRPC's own, except in simulations."""

    def __call__(self, address: str, config: ClientConfig, credentials: Any) -> Any: ...


def open_channel(address: str, config: ClientConfig, credentials: Any) -> Any:
    """Return gRPC's channel, which connects on first use; `credentials` are gRPC's for TLS, None without it."""
    options = [
        ("grpc.max_receive_message_length", -1),  # the broker bounds its answers by what a fetch asks for
        ("grpc.max_send_message_length", -1),
        ("grpc.initial_reconnect_backoff_ms", config.reconnect_backoff_ms),
        ("grpc.min_reconnect_backoff_ms", config.reconnect_backoff_ms),
        ("grpc.max_reconnect_backoff_ms", config.reconnect_backoff_max_ms),
        ("grpc.enable_retries", 0),  # the client itself knows what it may retry
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, credentials, options=options)


class Connection:
    """The channel to one broker, and the stubs of its services."""

    def __init__(self, address: str, login: CallCredentials, channel: Any) -> None:
        self.address = address
        self._call_credentials = login
        self._channel = channel
        self.log: Any = LogStub(self._channel)  # type: ignore[no-untyped-call]
        self.admin: Any = AdminStub(self._channel)  # type: ignore[no-untyped-call]
        self.groups: Any = GroupsStub(self._channel)  # type: ignore[no-untyped-call]
        self.maintenance: Any = MaintenanceStub(self._channel)  # type: ignore[no-untyped-call]
        self.sinks: Any = SinksStub(self._channel)  # type: ignore[no-untyped-call]
        self.transactions: Any = TransactionsStub(self._channel)  # type: ignore[no-untyped-call]
        self._throttled: dict[Callable[..., Any], float] = {}
        """When each throttled method may be called again, by the loop's clock."""

    async def call(
        self, method: Callable[..., Awaitable[T]], request: Any, timeout_ms: float, more: Metadata = ()
    ) -> T:
        """Return the answer to `request`. First waits out the throttle time of the method's last answer (KIP-219).

        more: metadata of this call alone

        Raises a KafkaError if gRPC fails, ThrottlingQuotaExceeded if the throttle time exceeds `timeout_ms`, and
        ClosedError after `close`.
        """
        if method in self._throttled:
            await self._wait(method, timeout_ms)
        metadata = await self.metadata()
        try:
            answer = await method(request, timeout=max(timeout_ms, 1) / 1000, metadata=metadata + more)
        except grpc.aio.AioRpcError as failure:
            raise self.error_of(failure) from None
        except grpc.aio.UsageError:
            raise ClosedError(f"the connection to {self.address} is closed") from None
        if wait_ms := getattr(answer, "throttle_time_ms", 0):
            self._throttled[method] = asyncio.get_running_loop().time() + wait_ms / 1000
        return answer

    async def _wait(self, method: Callable[..., Any], timeout_ms: float) -> None:
        wait_s = self._throttled[method] - asyncio.get_running_loop().time()
        if wait_s * 1000 > timeout_ms:
            await asyncio.sleep(timeout_ms / 1000)
            raise ThrottlingQuotaExceeded(f"{self.address}: the client's quota is used up for another {wait_s:.0f} s")
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        self._throttled.pop(method, None)

    async def metadata(self) -> Metadata:
        """Return the metadata of a call. Raises a KafkaError if no token can be obtained."""
        return await self._call_credentials.metadata()

    async def step(self, step: Awaitable[T], timeout_ms: float) -> T:
        """Return the result of a read, a write or the end of a streaming call; raises as `call` does."""
        try:
            return await asyncio.wait_for(step, max(timeout_ms, 1) / 1000)
        except TimeoutError:
            raise RequestTimedOut(f"{self.address}: nothing for {timeout_ms} ms") from None
        except grpc.aio.AioRpcError as failure:
            raise self.error_of(failure) from None
        except grpc.aio.UsageError:
            raise ClosedError(f"the connection to {self.address} is closed") from None

    def error_of(self, failure: grpc.aio.AioRpcError) -> KafkaError:
        """Return the Kafka error with which the broker refused the call, or else the one for gRPC's status."""
        details = failure.details() or failure.code().name
        cls = _ERRORS_OF_STATUS.get(failure.code(), UnknownServerError)
        if cls is NetworkException:
            why = details.removesuffix(": OK").rpartition(": ")[2]
            meaning = next((text for part, text in _MEANINGS.items() if part in details), why)
            return NetworkException(f"no broker answers at {self.address} ({meaning})", address=self.address)
        code = dict(failure.trailing_metadata() or ()).get(ERROR_CODE)
        if code is not None and cls is not RequestTimedOut:
            if int(code) == SaslAuthenticationFailed.code:
                self._call_credentials.refused()
            return error_for(int(code), f"{self.address}: {details.partition(': ')[2]}")
        return cls(f"{self.address}: {details}")

    async def close(self) -> None:
        """Close the channel; calls that are under way fail."""
        await self._channel.close()


class Connections:
    """A client's connections, by address."""

    def __init__(self, config: ClientConfig, open_channel: OpenChannel = open_channel) -> None:
        """Raises ConfigError if a key or certificate file cannot be used, or if a needed user or token is missing."""
        self._call_credentials = CallCredentials(config)
        self._config = config
        self._open_channel = open_channel
        self._credentials = credentials_of(config)
        self._open: dict[str, Connection] = {}

    def get(self, address: str) -> Connection:
        """Return the connection to `address`; open it on first use."""
        found = self._open.get(address)
        if found is None:
            channel = self._open_channel(address, self._config, self._credentials)
            found = self._open[address] = Connection(address, self._call_credentials, channel)
        return found

    async def close(self) -> None:
        """Close all connections; `get` opens new ones."""
        for connection in self._open.values():
            await connection.close()
        self._open.clear()


def credentials_of(config: ClientConfig) -> Any:
    """Return gRPC's credentials for TLS, None without it; raises ConfigError if a file cannot be used."""
    if config.security_protocol.endswith("PLAINTEXT"):
        return None
    trusted, own = config.ssl_truststore_location, config.ssl_keystore_location
    keystore = read_keystore_for_grpc("ssl_keystore_location", own) if own else None
    return grpc.ssl_channel_credentials(
        root_certificates=read_pem("ssl_truststore_location", trusted) if trusted else None,
        private_key=keystore,
        certificate_chain=keystore,
    )


def raise_error_of(result: Any) -> None:
    """Raise the error in a result, if any."""
    if error := read_error(result):
        raise error

"""One gRPC call: its broker and its client. The client's principal depends on grpc.security.protocol:

SASL_PLAINTEXT, SASL_SSL    the user of the call's password (server/passwords.py) or token (server/tokens.py); a
                            stream ends when its token expires
SSL                         the name of the client's certificate, if the listener requests one
otherwise                   User:ANONYMOUS
"""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from time import monotonic, time_ns
from typing import Any, TypeVar

from sparklog.base.errors import SaslAuthenticationFailed
from sparklog.base.tracing import TRACEPARENT, RequestTracing
from sparklog.broker.api import Api, Handler
from sparklog.broker.apis.sasl import FIND_CREDENTIALS
from sparklog.broker.node import Broker
from sparklog.broker.rights import Access
from sparklog.cluster.users import ScramCredential, ScramMechanism
from sparklog.runtime.remote_waits import WorkTimer
from sparklog.security.acls import Subject
from sparklog.security.quotas import Mutate, unlimited
from sparklog.server.certificate_names import ANONYMOUS, principal_of_pem
from sparklog.server.grpc.throttle import CallThrottle, HeldCalls
from sparklog.server.passwords import PasswordVerifier
from sparklog.server.security import ListenerSecurity

Request = TypeVar("Request")
Response = TypeVar("Response")


class GrpcCall:
    """The call, for the methods of servicers."""

    def __init__(
        self,
        broker: Broker,
        context: Any,
        user: str | None = None,
        *,
        lifetime_ms: float | None = None,
        held: HeldCalls | None = None,
    ) -> None:
        """Begin the call.

        context: the call's context of gRPC
        user: the user of the password or token; None: the principal is that of the certificate
        lifetime_ms: remaining life of the token; None without a token
        held: the calls that wait for quotas; None: this call alone
        """
        self.broker = broker
        self.context = context
        self._user = user
        self._held = held or HeldCalls()
        self._expires_s = None if lifetime_ms is None else asyncio.get_running_loop().time() + lifetime_ms / 1000

    @cached_property
    def host(self) -> str:
        """The client's address. gRPC has ipv4:127.0.0.1:50123 or ipv6:%5B::1%5D:50123; other kinds are unchanged."""
        peer: str = self.context.peer()
        kind, _, address = peer.partition(":")
        if kind not in ("ipv4", "ipv6"):
            return peer
        return address.rpartition(":")[0].removeprefix("%5B").removesuffix("%5D").strip("[]").removeprefix("::ffff:")

    @property
    def has_token(self) -> bool:
        """Whether the call ends when its token expires."""
        return self._expires_s is not None

    @asynccontextmanager
    async def while_valid(self) -> AsyncIterator[None]:
        """Cancel the block when the call's token expires, and raise SaslAuthenticationFailed."""
        try:
            async with asyncio.timeout_at(self._expires_s) as limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise SaslAuthenticationFailed("the token of this stream has expired: begin another stream") from None

    @property
    def client_host(self) -> str:
        """The client's address in Kafka's form, /127.0.0.1."""
        return f"/{self.host}"

    @property
    def client_id(self) -> str:
        """The call's metadata `client-id`; empty without it."""
        return self._metadata("client-id")

    @cached_property
    def subject(self) -> Subject:
        """The call's principal and host. Raises SaslAuthenticationFailed if no rule applies to the certificate."""
        if self._user is not None:
            return Subject(f"User:{self._user}", self.host)
        certificates = self.context.auth_context().get("x509_pem_cert", ())
        return Subject(
            principal_of_pem(certificates[0], self.broker.principals) if certificates else ANONYMOUS, self.host
        )

    @property
    def throttle(self) -> CallThrottle | None:
        """The client's current quotas; None if there are none. Raises as `subject` does."""
        quotas = self.broker.client_quotas
        if not quotas.has_client_quotas:
            return None
        client = quotas.client(self.subject.user, self.client_id, monotonic())
        if not client.is_limited:
            return None
        return CallThrottle(client, self._held, self.context.time_remaining(), quotas.count_wait)

    @property
    def mutation_quota(self) -> Mutate:
        """Function that counts the partitions that the call creates or deletes; raises ThrottlingQuotaExceeded."""
        throttle = self.throttle
        return throttle.mutate if throttle else unlimited

    def serve(self, api: Api[Request, Response], request: Request) -> Awaitable[Response]:
        """Return the handler's response, with errors for refused resources. Raises KafkaError for a refused request."""
        return self.broker.clients.serve(api, request, self)

    async def authorized(
        self, api: Api[Request, Response], serve: Handler[Request, Response], request: Request
    ) -> Response:
        """Pass the allowed part of the request to `serve`, and return the response with errors for the rest."""
        return await self.broker.clients.authorized(api, serve, request, self)

    def ended(self, method: str, timer: WorkTimer) -> None:
        """Log the call, or one request of its stream, if it was slow; trace it if tracing is on.

        timer: of the request
        """
        if (tracing := self.broker.tracing) is not None:
            self._trace(tracing, method, timer)
        log, local_s = self.broker.slow_requests, timer.local_s
        if local_s > log.slow_s:
            principal = "an unknown principal"
            with suppress(SaslAuthenticationFailed):  # no rule applies to the client's certificate
                principal = self.subject.principal
            log.log(
                method,
                "over gRPC",
                client_id=self.client_id,
                principal=principal,
                address=self.host,
                stages_s={"local": local_s, "remote": timer.remote_s, "total": local_s + timer.remote_s},
            )

    def _trace(self, tracing: RequestTracing, method: str, timer: WorkTimer) -> None:
        traceparent = self._metadata(TRACEPARENT)
        if tracing.is_wanted(traceparent):
            tracing.answered(
                method,
                traceparent,
                now_ns=time_ns(),
                local_s=timer.local_s,
                remote_s=timer.remote_s,
                attributes={"rpc.system": "grpc", "messaging.client.id": self.client_id, "client.address": self.host},
                error=sys.exception(),
            )

    def _metadata(self, name: str) -> str:
        """Return the value of the call's metadata of this name; empty without it."""
        return next((str(value) for key, value in self.context.invocation_metadata() or () if key == name), "")

    async def access(self) -> Access | None:
        """Return the client's rights; None without an authorizer."""
        return await self.broker.clients.access(self)


Begin = Callable[[Any], Awaitable[GrpcCall]]
"""Begins a call from gRPC's context. Raises SaslAuthenticationFailed if the client is not authenticated."""


def unauthenticated(broker: Broker, held: HeldCalls | None = None) -> Begin:
    """Return the `Begin` of a listener without passwords."""

    async def begin(context: Any) -> GrpcCall:
        return GrpcCall(broker, context, held=held)

    return begin


def authenticated(broker: Broker, security: ListenerSecurity, held: HeldCalls) -> Begin:
    """Return the `Begin` of the broker's gRPC listener, by `grpc.security.protocol`. held: as in GrpcCall"""
    if not broker.config.grpc_security_protocol.startswith("SASL_"):
        return unauthenticated(broker, held)

    async def find_credentials(user: str) -> Mapping[ScramMechanism, ScramCredential]:
        return await broker.handlers[FIND_CREDENTIALS](user)

    assert security.users
    passwords, tokens = PasswordVerifier(broker.config, security.users, find_credentials), security.tokens
    delay_s = broker.config.connection_failed_authentication_delay_ms / 1000

    async def begin(context: Any) -> GrpcCall:
        scheme, value = _authorization(context.invocation_metadata() or ())
        if scheme == "bearer" and tokens:
            try:
                verified = await tokens.verify(value)
            except SaslAuthenticationFailed:
                await asyncio.sleep(delay_s)
                raise
            lifetime_ms = verified.expires_ms - broker.clock.time_ms()
            return GrpcCall(broker, context, verified.user, lifetime_ms=lifetime_ms, held=held)
        if scheme != "basic":
            raise SaslAuthenticationFailed(_BASIC_NEEDED + _OR_BEARER * (tokens is not None))
        user, password = _user_and_password(value)
        await passwords.check(user, password)
        return GrpcCall(broker, context, user, held=held)

    return begin


_BASIC_NEEDED = (
    "this listener wants the metadata `authorization: Basic`, with base64 of USER:PASSWORD; sparklog's clients send it "
    "with security.protocol=SASL_SSL and sasl.jaas.config"
)
_OR_BEARER = "; or `authorization: Bearer`, with a token of OAUTHBEARER"


def _authorization(metadata: Iterable[tuple[str, Any]]) -> tuple[str, str]:
    """Return the scheme, in lower case, and the rest of the metadata `authorization`; both empty without it."""
    value = next((str(value) for key, value in metadata if key == "authorization"), "")
    scheme, _, rest = value.partition(" ")
    return scheme.lower(), rest


def _user_and_password(token: str) -> tuple[str, str]:
    """Return user and password of a call (RFC 7617). Raises SaslAuthenticationFailed."""
    try:
        user, colon, password = base64.b64decode(token, validate=True).decode().partition(":")
    except ValueError:  # includes UnicodeDecodeError and binascii.Error
        user, colon, password = "", "", ""
    if not (user and colon):
        raise SaslAuthenticationFailed("the metadata `authorization: Basic` is not followed by base64 of USER:PASSWORD")
    return user, password

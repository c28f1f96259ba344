"""One gRPC call: the broker, and the client that has made it.

The client's principal is made from its certificate, where the listener asks for one; else it is User:ANONYMOUS.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import cached_property
from typing import Any, TypeVar

from sparklog.broker.api import Api, Handler
from sparklog.broker.node import Broker
from sparklog.broker.rights import Access
from sparklog.security.acls import Subject
from sparklog.server.certificate_names import ANONYMOUS, principal_of_pem

Request = TypeVar("Request")
Response = TypeVar("Response")


class GrpcCall:
    """The call, for the methods of servicers."""

    def __init__(self, broker: Broker, context: Any) -> None:
        """context: gRPC's, of the call"""
        self.broker = broker
        self.context = context

    @cached_property
    def host(self) -> str:
        """The client's address. gRPC has ipv4:127.0.0.1:50123 or ipv6:%5B::1%5D:50123; other kinds stay as they are."""
        peer: str = self.context.peer()
        kind, _, address = peer.partition(":")
        if kind not in ("ipv4", "ipv6"):
            return peer
        return address.rpartition(":")[0].removeprefix("%5B").removesuffix("%5D").strip("[]").removeprefix("::ffff:")

    @property
    def client_host(self) -> str:
        """The client's address in Kafka's form, /127.0.0.1."""
        return f"/{self.host}"

    @property
    def client_id(self) -> str:
        """The call's metadata `client-id`; empty without it."""
        return next((str(value) for key, value in self.context.invocation_metadata() or () if key == "client-id"), "")

    @cached_property
    def subject(self) -> Subject:
        """Who has made the call. Raises SaslAuthenticationFailed if no rule applies to the client's certificate."""
        certificates = self.context.auth_context().get("x509_pem_cert", ())
        return Subject(
            principal_of_pem(certificates[0], self.broker.principals) if certificates else ANONYMOUS, self.host
        )

    def serve(self, api: Api[Request, Response], request: Request) -> Awaitable[Response]:
        """Have the broker serve what the client has a right to. Raises KafkaError if the whole request is refused."""
        return self.broker.serve_client(api, request, lambda: self.subject)

    async def authorized(
        self, api: Api[Request, Response], serve: Handler[Request, Response], request: Request
    ) -> Response:
        """Pass to `serve` what the client has a right to, and return the response with errors for the rest."""
        return await self.broker.authorized(api, serve, request, lambda: self.subject)

    async def access(self) -> Access | None:
        """Return what the client may do; None if everybody may do everything."""
        return await self.broker.access(lambda: self.subject)

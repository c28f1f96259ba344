"""DescribeUserScramCredentials: list the SCRAM mechanisms and iterations of users, never the secrets (key 50).

- No names: all users. A user without credentials gets RESOURCE_NOT_FOUND, one named twice DUPLICATE_RESOURCE.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparklog.base.errors import DuplicateResource, KafkaError, ResourceNotFound
from sparklog.broker.api import Api
from sparklog.cluster.users import ScramMechanism, UserStore


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeUserScramCredentialsRequest:
    users: Sequence[str]
    """Users to describe; empty: all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCredentials:
    user: str
    iterations: Mapping[ScramMechanism, int]
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeUserScramCredentialsResponse:
    users: Sequence[UserCredentials]


async def handle(
    request: DescribeUserScramCredentialsRequest, *, users: UserStore
) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(users=await asyncio.to_thread(_describe, users, request.users))


def _describe(users: UserStore, names: Sequence[str]) -> list[UserCredentials]:
    """Describe the users. Blocks."""
    asked = Counter(names or users.names())
    return [_describe_user(users, name, count) for name, count in asked.items()]


def _describe_user(users: UserStore, name: str, count: int) -> UserCredentials:
    if count > 1:
        error: KafkaError = DuplicateResource(
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        )
        return UserCredentials(user=name, iterations={}, error=error)
    found = users.credentials(name)
    if not found:
        error = ResourceNotFound(f"Attempt to describe a user credential that does not exist: {name}")
        return UserCredentials(user=name, iterations={}, error=error)
    return UserCredentials(user=name, iterations={mechanism: it.iterations for mechanism, it in found.items()})


API = Api(name="DescribeUserScramCredentials", handle=handle, key=50, versions=(0, 0))

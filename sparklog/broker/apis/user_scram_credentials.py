"""The SCRAM credentials of users, described and altered.

DescribeUserScramCredentials (key 50):

- The answer has the mechanisms and iterations of users, never the secrets.
- No names: all users. A user without credentials gets RESOURCE_NOT_FOUND, one named twice DUPLICATE_RESOURCE.

AlterUserScramCredentials (key 51):

- A credential arrives as the salted password: the broker never sees the password, and stores only what verifies it.
- Checks as in Kafka: UNACCEPTABLE_CREDENTIAL for an empty name, and for iterations below 4096 or above 16384;
  UNSUPPORTED_SASL_MECHANISM; DUPLICATE_RESOURCE for the same credential twice in a request; RESOURCE_NOT_FOUND for the
  deletion of a missing credential. Also UNACCEPTABLE_CREDENTIAL for an empty salt. If one change of a user is invalid,
  none of that user's changes is made; those of other users are.
- One request may change a user's credentials for several mechanisms; Kafka 4 refuses that as a duplicate.
- A change applies to new connections; existing connections stay as they are.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from sparklog.base.acls import AclOperation
from sparklog.base.errors import (
    DuplicateResource,
    KafkaError,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
)
from sparklog.broker.api import Api
from sparklog.broker.rights import on_cluster
from sparklog.cluster.users import MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential, ScramMechanism, UserStore


class DescribeUserScramCredentialsRequest(Struct, frozen=True, kw_only=True):
    users: Sequence[str]
    """Users to describe; empty: all of them."""


class UserCredentials(Struct, frozen=True, kw_only=True):
    user: str
    iterations: Mapping[ScramMechanism, int]
    error: KafkaError | None = None


class DescribeUserScramCredentialsResponse(Struct, frozen=True, kw_only=True):
    users: Sequence[UserCredentials]


class CredentialDeletion(Struct, frozen=True, kw_only=True):
    user: str
    mechanism: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialUpsertion:
    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes = field(repr=False)


class AlterUserScramCredentialsRequest(Struct, frozen=True, kw_only=True):
    deletions: Sequence[CredentialDeletion]
    upsertions: Sequence[CredentialUpsertion]


class AlterUserScramCredentialsResponse(Struct, frozen=True, kw_only=True):
    results: Mapping[str, KafkaError | None]
    """The error by user; None: the changes are made."""


async def describe(
    request: DescribeUserScramCredentialsRequest, *, users: UserStore
) -> DescribeUserScramCredentialsResponse:
    """Return the credentials or an error of each user. The store is read in a thread."""
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


async def alter(request: AlterUserScramCredentialsRequest, *, users: UserStore) -> AlterUserScramCredentialsResponse:
    """Return an error, or None, for each user, once all changes are stored."""
    changes: dict[str, list[CredentialDeletion | CredentialUpsertion]] = {}
    asked_for: list[CredentialDeletion | CredentialUpsertion] = [*request.deletions, *request.upsertions]
    for change in asked_for:
        changes.setdefault(change.user, []).append(change)
    results = {user: await asyncio.to_thread(_change_user, users, user, asked) for user, asked in changes.items()}
    return AlterUserScramCredentialsResponse(results=results)


def _change_user(
    users: UserStore, user: str, changes: Sequence[CredentialDeletion | CredentialUpsertion]
) -> KafkaError | None:
    """Make all changes of a user, or return the error that prevents all of them. Blocks."""
    try:
        _check(users, user, changes)
    except KafkaError as error:
        return error
    for change in changes:
        mechanism = ScramMechanism(change.mechanism)
        if isinstance(change, CredentialDeletion):
            users.delete(user, mechanism)
        else:
            credential = ScramCredential.of_salted(mechanism, change.salted_password, change.salt, change.iterations)
            users.put(user, mechanism, credential)
    return None


def _check(users: UserStore, user: str, changes: Sequence[CredentialDeletion | CredentialUpsertion]) -> None:
    there = users.credentials(user)
    seen: set[int] = set()
    for change in changes:
        if not user:
            raise UnacceptableCredential("Username must not be empty")
        if change.mechanism not in tuple(ScramMechanism):
            raise UnsupportedSaslMechanism("Unknown SCRAM mechanism")
        if change.mechanism in seen:
            raise DuplicateResource("A user credential cannot be altered twice in the same request")
        seen.add(change.mechanism)
        if isinstance(change, CredentialUpsertion):
            _check_credential(change)
        elif change.mechanism not in there:
            raise ResourceNotFound("Attempt to delete a user credential that does not exist")


def _check_credential(change: CredentialUpsertion) -> None:
    if change.iterations < MIN_ITERATIONS:
        raise UnacceptableCredential("Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        raise UnacceptableCredential("Too many iterations")
    if not change.salt:
        raise UnacceptableCredential("The salt must not be empty")


DESCRIBE_USER_SCRAM_CREDENTIALS = Api(
    name="DescribeUserScramCredentials",
    summary="list the SCRAM mechanisms and iterations of users, never the secrets",
    handle=describe,
    rights=(on_cluster(AclOperation.DESCRIBE),),
    key=50,
    versions=(0, 0),
)
ALTER_USER_SCRAM_CREDENTIALS = Api(
    name="AlterUserScramCredentials",
    summary="set and delete the SCRAM credentials of users",
    handle=alter,
    rights=(on_cluster(AclOperation.ALTER),),
    key=51,
    versions=(0, 0),
)

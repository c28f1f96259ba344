"""The rights that an API demands of a client: entries of the table of APIs name them.

    On           a right to the one resource that the request is about; without it, the whole request is refused
    OnEach       a right to each element's resource; elements without it get an error, the others are served
    OnEachKey    the same, where the response is a mapping
    OnAnswers    the same, decided after the request was served: the request need not name the elements
    OnShown      elements of the response are left out without the right
    OnAll        a right to several resources; without one of them, the whole request is refused
    OnAny        a right to any resource of a type
    OneOf        one of several alternatives; without all of them, the last one refuses
    Either       one right or another, depending on the request
    If           a right that only some requests need

Rights are checked in their order, before the handler runs. Operations and errors are those of Apache Kafka's KafkaApis.
A client without a right gets the same error whether the named resource exists or not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from msgspec import Struct, field, structs

from sparklog.base.acls import CLUSTER_NAME, AclOperation, AclResourceType
from sparklog.base.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    KafkaError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from sparklog.security.acls import Action, Subject
from sparklog.security.authorizer import Authorizer

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    AclResourceType.TOPIC,
    AclResourceType.GROUP,
    AclResourceType.CLUSTER,
    AclResourceType.TRANSACTIONAL_ID,
)
_ERRORS: Mapping[AclResourceType, type[KafkaError]] = {
    TOPIC: TopicAuthorizationFailed,
    GROUP: GroupAuthorizationFailed,
    CLUSTER: ClusterAuthorizationFailed,
    TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed,
}
MAX_CLIENTS, MAX_NAMES = 1_000, 1_000
"""Maximum number of clients, and of names for each right of a client, whose rights are cached."""
Serve = Callable[[Any], Awaitable[Any]]
"""Serves a request whose rights have been checked, and returns the response."""
Name = Callable[[Any, "Access"], str | None]
"""Returns the name of an element's resource; None if the element names none and needs no right."""


class KnownTopics(Protocol):
    """The topics of the cluster."""

    def __contains__(self, name: str) -> bool: ...

    def find_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id; None if there is none."""
        ...


class Access(Struct, frozen=True, eq=False):
    """The rights of one client, while the ACLs stay the same."""

    authorizer: Authorizer
    subject: Subject
    topics: KnownTopics
    creates_topics: bool
    """Whether the broker creates missing topics that clients name (auto.create.topics.enable)."""
    allowed: dict[OnElements, set[str]] = field(default_factory=dict)
    """Names of resources to which the client has each right: a cache of decisions."""
    nothing_is_left: Callable[[], None] = lambda: None
    """Called if the client has a right to no element of a request."""

    def with_callback(self, nothing_is_left: Callable[[], None]) -> Access:
        """Return the same access with another `nothing_is_left`."""
        return Access(self.authorizer, self.subject, self.topics, self.creates_topics, self.allowed, nothing_is_left)

    def may(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:
        """Return whether the client may do the operation on the resource."""
        return self.authorizer.is_allowed(self.subject, Action(operation, resource_type, name))

    def has(self, right: OnElements, name: str) -> bool:
        """Return whether the client has the right to the resource of this name."""
        if name in self.allowed.get(right, ()):
            return True
        if not self.may(right.operation, right.type, name):
            return False
        if not self.authorizer.is_audited:  # the audit log has each decision
            names = self.allowed.setdefault(right, set())
            if len(names) >= MAX_NAMES:
                names.clear()
            names.add(name)
        return True

    def may_somewhere(self, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """Return whether the client may do the operation on any resource of the type."""
        return self.authorizer.is_allowed_somewhere(self.subject, operation, resource_type)

    def check(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> None:
        """Raises the error for a client without the right."""
        if not self.may(operation, resource_type, name):
            raise self.refusal(operation, resource_type, name)

    def operations(self, resource_type: AclResourceType, name: str) -> Sequence[AclOperation]:
        """Return the operations that the client may do on a resource."""
        return self.authorizer.operations(self.subject, resource_type, name)

    def refusal(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> KafkaError:
        """Return the error for a client without the right."""
        return _ERRORS[resource_type](f"{self.subject.principal} may not {operation.name} {resource_type.name} {name}")


class Accesses:
    """The accesses of clients. Used on one event loop."""

    def __init__(self, authorizer: Authorizer, topics: KnownTopics, *, creates_topics: bool) -> None:
        """The arguments are the fields of `Access`."""
        self._authorizer = authorizer
        self._topics = topics
        self._creates_topics = creates_topics
        self._known: dict[Subject, Access] = {}
        self._version = -1

    def admit(self, rights: Sequence[Right], request: Any, subject: Subject) -> bool:
        """Return whether a client has all rights to the whole request."""
        access = self.of(subject)
        for right in rights:  # noqa: SIM110 - a loop is faster, and every request takes it
            if not right.admits(request, access):
                return False
        return True

    def of(self, subject: Subject) -> Access:
        """Return a client's rights by the present ACLs."""
        if self._version == self._authorizer.version and (found := self._known.get(subject)):
            return found
        if self._version != self._authorizer.version or len(self._known) >= MAX_CLIENTS:
            self._known.clear()
            self._version = self._authorizer.version
        access = self._known[subject] = Access(self._authorizer, subject, self._topics, self._creates_topics)
        return access


class Right(Protocol):
    """A right that a request needs, and the response without it."""

    def admits(self, request: Any, access: Access) -> bool:
        """Return whether the client has the right to the whole request: then `apply` only serves it."""
        ...

    async def apply(self, request: Any, access: Access, serve: Serve) -> Any:
        """Serve the allowed part of the request; return the response. Raises KafkaError if no part is allowed and the
        response has no place for the error."""
        ...


class On(Struct, frozen=True, eq=False):
    """A right to the resource that the whole request is about. Implements Right."""

    operation: AclOperation
    type: AclResourceType
    name: Name = lambda request, access: CLUSTER_NAME
    refused: Callable[[KafkaError], Any] | None = None
    """Makes the response to a request that is refused; None: the error is raised."""

    def admits(self, request: Any, access: Access) -> bool:
        name = self.name(request, access)
        return name is None or access.may(self.operation, self.type, name)

    async def apply(self, request: Any, access: Access, serve: Serve) -> Any:
        name = self.name(request, access)
        if name is None or access.may(self.operation, self.type, name):
            return await serve(request)
        error = access.refusal(self.operation, self.type, name)
        if self.refused is None:
            raise error
        return self.refused(error)

    def __str__(self) -> str:
        return f"{self.operation.name} on {self.type.name}"


class OnElements(Struct, frozen=True, eq=False):
    """A right to the resource of each element of `field`, a field of the request or of the response."""

    operation: AclOperation
    type: AclResourceType
    field: str
    name: Name

    def covers(self, elements: Iterable[Any], access: Access) -> bool:
        """Return whether the client has the right to all of the elements."""
        allowed = access.allowed.get(self, ())
        for element in elements:
            name = self.name(element, access)
            if name is not None and name not in allowed and not access.has(self, name):
                return False
        return True

    def errors(self, elements: Iterable[Any], access: Access) -> dict[int, KafkaError]:
        """Return the errors of those elements, by position, to which the client has no right."""
        errors = {}
        for number, element in enumerate(elements):
            name = self.name(element, access)
            if name is not None and not access.has(self, name):
                errors[number] = access.refusal(self.operation, self.type, name)
        return errors

    def __str__(self) -> str:
        return f"{self.operation.name} on each {self.type.name}"


class _OfRequested(OnElements, frozen=True, eq=False):
    """A right to elements that the request names; elements without it are not served."""

    def admits(self, request: Any, access: Access) -> bool:
        return self.covers(getattr(request, self.field) or (), access)

    async def apply(self, request: Any, access: Access, serve: Serve) -> Any:
        elements = list(getattr(request, self.field) or ())
        errors = self.errors(elements, access)
        if not errors:
            return await serve(request)
        served = [element for number, element in enumerate(elements) if number not in errors]
        if not served:
            access.nothing_is_left()
        response = await self.serve_rest(structs.replace(request, **{self.field: served}), served, serve)
        return self.merged(response, elements, errors)

    async def serve_rest(self, request: Any, served: Sequence[Any], serve: Serve) -> Any:
        """Serve the elements that are left."""
        return await serve(request)

    def merged(self, response: Any, elements: Sequence[Any], errors: Mapping[int, KafkaError]) -> Any:
        """Return the response with the errors of elements, by their position."""
        raise NotImplementedError


class OnEach(_OfRequested, frozen=True, eq=False):
    """A right to the resource of each element of the request's sequence `field`.

    The response's sequence `answers` has a result for each element, in the same order.
    """

    refused: Callable[[Any, KafkaError], Any]
    """Makes the result of an element that is refused."""
    answers: str
    nothing: Callable[[Any], Any] | None = None
    """Makes a response without elements; None: the handler serves a request without elements."""

    async def serve_rest(self, request: Any, served: Sequence[Any], serve: Serve) -> Any:
        return self.nothing(request) if self.nothing and not served else await serve(request)

    def merged(self, response: Any, elements: Sequence[Any], errors: Mapping[int, KafkaError]) -> Any:
        answers = list(getattr(response, self.answers))
        for number, error in errors.items():  # ascending, so that each is put in its place
            answers.insert(number, self.refused(elements[number], error))
        return structs.replace(response, **{self.answers: answers})


class OnEachKey(_OfRequested, frozen=True, eq=False):
    """A right to the resource of each element of the request's collection `field`.

    The response's mapping `answers` has an entry for each element, by `key`; for an element that is refused, the error.
    """

    answers: str = "errors"
    key: Callable[[Any], Any] = lambda element: element

    def merged(self, response: Any, elements: Sequence[Any], errors: Mapping[int, KafkaError]) -> Any:
        refused = {self.key(elements[number]): error for number, error in errors.items()}
        return structs.replace(response, **{self.answers: {**getattr(response, self.answers), **refused}})


class OnAnswers(OnElements, frozen=True, eq=False):
    """A right to the resource of each element of the response's sequence or mapping `field`. Implements Right."""

    refused: Callable[[Any, KafkaError], Any]
    """Makes the result of a refused element from its result; for a mapping, the value from its key."""

    def admits(self, request: Any, access: Access) -> bool:
        return False  # decided by the response

    async def apply(self, request: Any, access: Access, serve: Serve) -> Any:
        response = await serve(request)
        found = getattr(response, self.field)
        errors = self.errors(found, access)
        if not errors:
            return response
        if len(errors) == len(found):
            access.nothing_is_left()
        if isinstance(found, Mapping):
            refused = {key: self.refused(key, errors[number]) for number, key in enumerate(found) if number in errors}
            return structs.replace(response, **{self.field: {**found, **refused}})
        checked = [
            self.refused(each, errors[number]) if number in errors else each for number, each in enumerate(found)
        ]
        return structs.replace(response, **{self.field: checked})


class OnShown(OnElements, frozen=True, eq=False):
    """A right to see the elements of the response's sequence or mapping `field`; others are left out.

    Implements Right.
    """

    def admits(self, request: Any, access: Access) -> bool:
        return False  # decided by the response

    async def apply(self, request: Any, access: Access, serve: Serve) -> Any:
        response = await serve(request)
        found = getattr(response, self.field)
        hidden = self.errors(found, access)
        if not hidden:
            return response
        kept = [each for number, each in enumerate(found) if number not in hidden]
        shown = {key: found[key] for key in kept} if isinstance(found, Mapping) else kept
        return structs.replace(response, **{self.field: shown})

    def __str__(self) -> str:
        return f"{self.operation.name} on each {self.type.name} that is shown"


class OnAll(Struct, frozen=True, eq=False):
    """A right to several resources that the request names. Implements Right."""

    operation: AclOperation
    type: AclResourceType
    names: Callable[[Any], Iterable[str]]

    def admits(self, request: Any, access: Access) -> bool:
        return all(access.may(self.operation, self.type, name) for name in self.names(request))

    async def apply(self, request: Any, access: Access, serve: Serve) -> Any:
        for name in self.names(request):
            access.check(self.operation, self.type, name)
        return await serve(request)

    def __str__(self) -> str:
        return f"{self.operation.name} on every {self.type.name}"


class OnAny(Struct, frozen=True, eq=False):
    """A right to any resource of a type (Authorizer.authorizeByResourceType). Implements Right."""

    operation: AclOperation
    type: AclResourceType
    refused: On
    """The right whose lack is the error for a client without this one."""

    def admits(self, request: Any, access: Access) -> bool:
        return access.may_somewhere(self.operation, self.type)

    async def apply(self, request: Any, access: Access, serve: Serve) -> Any:
        if self.admits(request, access):
            return await serve(request)
        return await self.refused.apply(request, access, serve)

    def __str__(self) -> str:
        return f"{self.refused} or {self.operation.name} on any {self.type.name}"


class OneOf(Struct, frozen=True, eq=False):
    """One of several rights: an alternative that admits the whole request, else `otherwise`. Implements Right."""

    alternatives: tuple[On, ...]
    otherwise: Right

    def admits(self, request: Any, access: Access) -> bool:
        return any(right.admits(request, access) for right in (*self.alternatives, self.otherwise))

    async def apply(self, request: Any, access: Access, serve: Serve) -> Any:
        if any(right.admits(request, access) for right in self.alternatives):
            return await serve(request)
        return await self.otherwise.apply(request, access, serve)

    def __str__(self) -> str:
        return " or ".join(map(str, (*self.alternatives, self.otherwise)))


class Either(Struct, frozen=True, eq=False):
    """One right or another, depending on the request. Implements Right."""

    is_first: Callable[[Any], bool]
    first: Right
    second: Right

    def admits(self, request: Any, access: Access) -> bool:
        right = self.first if self.is_first(request) else self.second
        return right.admits(request, access)

    async def apply(self, request: Any, access: Access, serve: Serve) -> Any:
        right = self.first if self.is_first(request) else self.second
        return await right.apply(request, access, serve)

    def __str__(self) -> str:
        return " or ".join(dict.fromkeys((str(self.first), str(self.second))))


class If(Struct, frozen=True, eq=False):
    """A right that only some requests need. Implements Right."""

    is_needed: Callable[[Any, Access], bool]
    right: Right

    def admits(self, request: Any, access: Access) -> bool:
        return not self.is_needed(request, access) or self.right.admits(request, access)

    async def apply(self, request: Any, access: Access, serve: Serve) -> Any:
        if self.is_needed(request, access):
            return await self.right.apply(request, access, serve)
        return await serve(request)

    def __str__(self) -> str:
        return str(self.right)


def on_cluster(operation: AclOperation) -> On:
    """Return a right to the cluster."""
    return On(operation, CLUSTER)


def on_group(operation: AclOperation, refused: Callable[[KafkaError], Any] | None = None) -> On:
    """Return a right to the request's group. refused: as in On"""
    return On(operation, GROUP, lambda request, access: request.group_id, refused)


def on_transactional_id(operation: AclOperation) -> On:
    """Return a right to the request's transactional id, if it has one."""
    return On(operation, TRANSACTIONAL_ID, lambda request, access: request.transactional_id)


def on_sink(operation: AclOperation) -> On:
    """Return a right to the request's sink, which is a transactional id."""
    return On(operation, TRANSACTIONAL_ID, lambda request, access: request.sink_id)


def to_create(
    field: str,
    name: Callable[[Any], str | None],
    refused: Callable[[Any, KafkaError], Any],
    answers: str,
    nothing: Callable[[Any], Any] | None = None,
) -> Right:
    """Return the right to create the missing topics of `field`, needed if the request lets the broker create them.

    name: returns an element's topic; other parameters: as in OnEach
    """

    def missing(element: Any, access: Access) -> str | None:
        topic = name(element)
        return None if topic is None or topic in access.topics else topic

    return If(
        lambda request, access: access.creates_topics and request.allow_auto_topic_creation,
        OneOf(
            (on_cluster(AclOperation.CREATE),),
            OnEach(AclOperation.CREATE, TOPIC, field, missing, refused, answers, nothing),
        ),
    )


def topic_of(element: Any, access: Access) -> str | None:
    """Return the element's field `topic`."""
    topic: str | None = element.topic
    return topic


def itself(element: str, access: Access) -> str:
    """Return the element, which is a name."""
    return element


OFFSETS = OnEachKey(
    AclOperation.READ,
    TOPIC,
    "offsets",
    lambda offset, access: offset.partition.topic,
    key=lambda offset: offset.partition,
)
"""READ on the topic of each offset that is committed."""


async def apply(rights: Sequence[Right], request: Any, access: Access, serve: Serve) -> Any:
    """Check the rights in their order, serve what they allow and return the response. Raises as `Right.apply` does."""
    if not rights:
        return await serve(request)
    return await rights[0].apply(request, access, lambda checked: apply(rights[1:], checked, access, serve))

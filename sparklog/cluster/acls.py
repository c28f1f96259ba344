"""ACLs in the cluster store, at the paths and in the JSON of Kafka in ZooKeeper (kafka.zk.ZkAclStore).

    /kafka-acl/TYPE/NAME                      the ACLs of a literal pattern
    /kafka-acl-extended/prefixed/TYPE/NAME    the ACLs of a prefixed pattern
        {"version": 1, "acls": [{"principal": "User:alice", "permissionType": "Allow", "operation": "Read",
                                 "host": "*"}]}
    /kafka-acl-changes/acl_changes_*, /kafka-acl-extended-changes/acl_changes_*
                                              the ACLs of a pattern have changed; the controller deletes these notices

TYPE is Topic, Group, Cluster, TransactionalId, DelegationToken or User. Characters of NAME that cannot be in a path are
escaped as in a URL. A pattern whose last ACL is deleted has no node.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import TypeVar
from urllib.parse import quote, unquote

from sparklog.base.acls import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    kafka_name,
)
from sparklog.base.errors import BadVersion, NodeExists, NoNode, NotEmpty, StoreError
from sparklog.cluster.store import ANY_VERSION, Create, Delete, Operation, Set, Store, encode_json, ensure_path

_ROOTS = {PatternType.LITERAL: "/kafka-acl", PatternType.PREFIXED: "/kafka-acl-extended/prefixed"}
ACL_CHANGES = "/kafka-acl-changes"
EXTENDED_ACL_CHANGES = "/kafka-acl-extended-changes"
ACL_PATHS = (*_ROOTS.values(), ACL_CHANGES, EXTENDED_ACL_CHANGES)
_SAFE = "*:@!$&'()+,;= "
"""Characters that are escaped neither in Kafka's paths nor here, beside letters, digits and ``-._~``."""
ATTEMPTS = 100
"""Maximum number of attempts to change a node that other writers change too."""

Change = Callable[[frozenset[AclBinding]], frozenset[AclBinding]]
Pattern = tuple[AclResourceType, str, PatternType]
_Enum = TypeVar("_Enum", bound=IntEnum)


class AclStore:
    """Reads and writes the ACLs of a cluster. Calls block, as those of Store do, and need no lock."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def make_paths(self) -> None:
        """Create the parent nodes that do not exist."""
        for path in ACL_PATHS:
            ensure_path(self._store, path)

    def load(self) -> frozenset[AclBinding]:
        """Return all ACLs. Raises StoreError if a node cannot be read: it may have ACLs that deny."""
        return frozenset(acl for pattern in self._patterns() for acl in self._get(pattern)[0])

    def add(self, acls: Iterable[AclBinding]) -> None:
        """Add valid ACLs; one that exists already stays."""
        for pattern, added in _by_pattern(acls).items():
            self._change(pattern, lambda present, added=added: present | added)  # type: ignore[misc]

    def delete(self, filters: Sequence[AclBindingFilter]) -> list[frozenset[AclBinding]]:
        """Delete the ACLs that filters select; return, for each filter, those that this call has deleted."""
        deleted: list[frozenset[AclBinding]] = [frozenset() for _ in filters]
        for pattern, present in _by_pattern(self.load()).items():
            if any(each.matches(acl) for each in filters for acl in present):
                gone = self._delete(pattern, filters)
                for number, each in enumerate(filters):
                    deleted[number] |= {acl for acl in gone if each.matches(acl)}
        return deleted

    def _delete(self, pattern: Pattern, filters: Sequence[AclBindingFilter]) -> frozenset[AclBinding]:
        gone: frozenset[AclBinding] = frozenset()

        def without(present: frozenset[AclBinding]) -> frozenset[AclBinding]:
            nonlocal gone
            gone = frozenset(acl for acl in present if any(each.matches(acl) for each in filters))
            return present - gone

        self._change(pattern, without)
        return gone

    def _change(self, pattern: Pattern, change: Change) -> None:
        """Change the ACLs of a pattern by compare and set, and notify the controller of a change.

        Both are one write: a change whose answer is lost has its notice, though the next attempt finds nothing to do.
        Raises StoreError if other writers change them ATTEMPTS times meanwhile.
        """
        for _ in range(ATTEMPTS):
            present, version = self._get(pattern)
            changed = change(present)
            if changed == present:
                return
            with suppress(BadVersion, NoNode, NodeExists, NotEmpty):
                self._store.multi((self._put(pattern, changed, version), self._notice(pattern)))
                return
        raise StoreError(f"{_path(pattern)} was changed by others {ATTEMPTS} times")

    def _put(self, pattern: Pattern, acls: frozenset[AclBinding], version: int) -> Operation:
        path = _path(pattern)
        if not acls:
            return Delete(path, version)
        if version == ANY_VERSION:
            ensure_path(self._store, path.rpartition("/")[0])
            return Create(path, _encode(acls))
        return Set(path, _encode(acls), version)

    def _get(self, pattern: Pattern) -> tuple[frozenset[AclBinding], int]:
        """Return the pattern's ACLs and the version of their node; none and ANY_VERSION if there is no node."""
        try:
            node = self._store.get(_path(pattern))
        except NoNode:
            return frozenset(), ANY_VERSION
        try:
            return _decode(pattern, node.data), node.version
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{_path(pattern)} in the cluster store does not hold ACLs: {error!r}") from error

    def _patterns(self) -> list[Pattern]:
        found = []
        for pattern_type, root in _ROOTS.items():
            for name in self._children(root):
                if resource_type := _named(AclResourceType, name):
                    resources = self._children(f"{root}/{name}")
                    found += [(resource_type, unquote(each), pattern_type) for each in resources]
        return found

    def _children(self, path: str) -> list[str]:
        try:
            return self._store.children(path)
        except NoNode:
            return []

    def _notice(self, pattern: Pattern) -> Create:
        resource_type, name, pattern_type = pattern
        if pattern_type is PatternType.LITERAL:
            path, data = ACL_CHANGES, f"{kafka_name(resource_type)}:{name}".encode()
        else:
            path = EXTENDED_ACL_CHANGES
            changed = {"resourceType": kafka_name(resource_type), "name": name, "patternType": pattern_type.name}
            data = encode_json({"version": 1, **changed})
        ensure_path(self._store, path)
        return Create(f"{path}/acl_changes_", data, sequential=True)


def _by_pattern(acls: Iterable[AclBinding]) -> dict[Pattern, frozenset[AclBinding]]:
    found: dict[Pattern, frozenset[AclBinding]] = {}
    for acl in acls:
        pattern = acl.resource_type, acl.name, acl.pattern_type
        found[pattern] = found.get(pattern, frozenset()) | {acl}
    return found


def _path(pattern: Pattern) -> str:
    resource_type, name, pattern_type = pattern
    escaped = quote(name, safe=_SAFE)
    if escaped in (".", ".."):  # not allowed as names in a path
        escaped = escaped.replace(".", "%2E")
    return f"{_ROOTS[pattern_type]}/{kafka_name(resource_type)}/{escaped}"


def _named(kind: type[_Enum], text: str) -> _Enum | None:
    return next((each for each in kind if kafka_name(each) == text), None)


def _encode(acls: frozenset[AclBinding]) -> bytes:
    entries = [
        {
            "principal": acl.principal,
            "permissionType": kafka_name(acl.permission),
            "operation": kafka_name(acl.operation),
            "host": acl.host,
        }
        for acl in sorted(acls)
    ]
    return encode_json({"version": 1, "acls": entries})


def _decode(pattern: Pattern, data: bytes) -> frozenset[AclBinding]:
    resource_type, name, pattern_type = pattern
    return frozenset(
        AclBinding(
            resource_type,
            name,
            pattern_type,
            principal=str(entry["principal"]),
            host=str(entry["host"]),
            operation=_named(AclOperation, entry["operation"]) or AclOperation.UNKNOWN,
            permission=_checked(AclPermission, entry["permissionType"]),
        )
        for entry in json.loads(data)["acls"]
    )


def _checked(kind: type[_Enum], text: str) -> _Enum:
    """Return the member with this name. Raises ValueError."""
    found = _named(kind, text)
    if found is None:
        raise ValueError(f"{text!r} is no {kind.__name__}")
    return found

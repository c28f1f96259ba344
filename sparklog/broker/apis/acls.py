"""DescribeAcls (key 29), CreateAcls (30) and DeleteAcls (31): the access control lists of the cluster.

- SECURITY_DISABLED without an authorizer (`authorizer.class.name`), as from Apache Kafka.
- Any broker writes ACLs to the cluster store. The controller sends them to all brokers, so a new ACL applies a moment
  after the answer. DescribeAcls reads the store, and so shows what was answered.
- CreateAcls: an ACL that exists already is no error. INVALID_REQUEST for an invalid ACL; the request's other ACLs are
  created.
- Differs from Apache Kafka: a host may be a network such as 10.0.0.0/8 (KIP-1276).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from sparklog.base.acls import AclBinding, AclBindingFilter, AclOperation
from sparklog.base.errors import InvalidRequest, KafkaError, SecurityDisabled
from sparklog.broker.api import Api
from sparklog.broker.rights import on_cluster
from sparklog.cluster.acls import AclStore
from sparklog.security.authorizer import Authorizer


class DescribeAclsRequest(Struct, frozen=True, kw_only=True):
    filter: AclBindingFilter


class DescribeAclsResponse(Struct, frozen=True, kw_only=True):
    acls: Sequence[AclBinding]
    """Sorted by resource."""


class CreateAclsRequest(Struct, frozen=True, kw_only=True):
    acls: Sequence[AclBinding]


class AclCreationResult(Struct, frozen=True, kw_only=True):
    error: KafkaError | None


class CreateAclsResponse(Struct, frozen=True, kw_only=True):
    acls: Sequence[AclCreationResult]
    """One for each ACL of the request, in order."""


class DeleteAclsRequest(Struct, frozen=True, kw_only=True):
    filters: Sequence[AclBindingFilter]


class AclDeletionResult(Struct, frozen=True, kw_only=True):
    error: KafkaError | None
    acls: Sequence[AclBinding]
    """The ACLs that this request has deleted."""


class DeleteAclsResponse(Struct, frozen=True, kw_only=True):
    filters: Sequence[AclDeletionResult]
    """One for each filter of the request, in order."""


async def describe(
    request: DescribeAclsRequest, *, acl_store: AclStore, authorizer: Authorizer
) -> DescribeAclsResponse:
    """Return the ACLs that the filter selects. Raises SecurityDisabled, or InvalidRequest for an unknown part."""
    _check_enabled(authorizer)
    request.filter.check()
    found = await asyncio.to_thread(acl_store.load)
    return DescribeAclsResponse(acls=sorted(acl for acl in found if request.filter.matches(acl)))


async def create(request: CreateAclsRequest, *, acl_store: AclStore, authorizer: Authorizer) -> CreateAclsResponse:
    """Create the valid ACLs, and answer when all of them are stored.

    Returns an error, or None, for each ACL, in their order. Raises SecurityDisabled.
    """
    _check_enabled(authorizer)
    errors = [_error_of(acl) for acl in request.acls]
    valid = [acl for acl, error in zip(request.acls, errors, strict=True) if error is None]
    await asyncio.to_thread(acl_store.add, valid)
    return CreateAclsResponse(acls=[AclCreationResult(error=error) for error in errors])


async def delete(request: DeleteAclsRequest, *, acl_store: AclStore, authorizer: Authorizer) -> DeleteAclsResponse:
    """Delete the ACLs that the filters select. Raises SecurityDisabled.

    Returns the sorted ACLs that each filter has deleted, or the error of an invalid filter, in the filters' order.
    """
    _check_enabled(authorizer)
    errors = [_error_of(each) for each in request.filters]
    valid = [each for each, error in zip(request.filters, errors, strict=True) if error is None]
    deleted = iter(await asyncio.to_thread(acl_store.delete, valid))
    return DeleteAclsResponse(
        filters=[AclDeletionResult(error=error, acls=() if error else sorted(next(deleted))) for error in errors]
    )


def _check_enabled(authorizer: Authorizer) -> None:
    if not authorizer.is_enabled:
        raise SecurityDisabled("No Authorizer is configured.")


def _error_of(checked: AclBinding | AclBindingFilter) -> InvalidRequest | None:
    try:
        checked.check()
    except InvalidRequest as error:
        return error
    return None


DESCRIBE_ACLS = Api(
    name="DescribeAcls",
    summary="list ACLs",
    handle=describe,
    rights=(on_cluster(AclOperation.DESCRIBE),),
    key=29,
    versions=(1, 3),
)
CREATE_ACLS = Api(
    name="CreateAcls",
    summary="create ACLs",
    handle=create,
    rights=(on_cluster(AclOperation.ALTER),),
    key=30,
    versions=(1, 3),
)
DELETE_ACLS = Api(
    name="DeleteAcls",
    summary="delete the ACLs that filters select",
    handle=delete,
    rights=(on_cluster(AclOperation.ALTER),),
    key=31,
    versions=(1, 3),
)

"""DescribeClientQuotas (key 48) and AlterClientQuotas (49): how much users, clients and addresses may ask for.

- Any broker writes quotas to the cluster store. The controller sends them to all brokers, so a new quota applies a
  moment after the answer. DescribeClientQuotas reads the store, and so shows what was answered.
- INVALID_REQUEST for an unknown key, a value that is not above 0, and entities that cannot be; the other changes of the
  request are made. UNSUPPORTED_VERSION for a type of entity other than user, client-id and ip.
- An address is not resolved: a host name is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from sparklog.base.acls import AclOperation
from sparklog.base.errors import InvalidRequest, KafkaError
from sparklog.base.quotas import ClientQuota, QuotaChange, QuotaFilter, check_types, select
from sparklog.broker.api import Api
from sparklog.broker.rights import on_cluster
from sparklog.cluster.quotas import QuotaStore


class DescribeClientQuotasRequest(Struct, frozen=True, kw_only=True):
    filters: Sequence[QuotaFilter] = ()
    strict: bool = False


class DescribeClientQuotasResponse(Struct, frozen=True, kw_only=True):
    quotas: Sequence[ClientQuota]
    """Sorted by entity."""


class AlterClientQuotasRequest(Struct, frozen=True, kw_only=True):
    changes: Sequence[QuotaChange]
    validate_only: bool = False


class QuotaChangeResult(Struct, frozen=True, kw_only=True):
    error: KafkaError | None


class AlterClientQuotasResponse(Struct, frozen=True, kw_only=True):
    changes: Sequence[QuotaChangeResult]
    """One for each change of the request, in order."""


async def describe(request: DescribeClientQuotasRequest, *, quota_store: QuotaStore) -> DescribeClientQuotasResponse:
    """Return the quotas that the filters select. Raises InvalidRequest or UnsupportedVersion for impossible ones."""
    check_types([each.type for each in request.filters])
    found = await asyncio.to_thread(quota_store.load)
    return DescribeClientQuotasResponse(quotas=select(found, request.filters, strict=request.strict))


async def alter(request: AlterClientQuotasRequest, *, quota_store: QuotaStore) -> AlterClientQuotasResponse:
    """Make the changes that are valid, and return an error, or None, for each when all of them are stored."""
    entities = [change.entity for change in request.changes]
    errors = [_error_of(change, entities.count(change.entity)) for change in request.changes]
    valid = [change for change, error in zip(request.changes, errors, strict=True) if error is None]
    if not request.validate_only:
        for change in valid:
            await asyncio.to_thread(quota_store.change, change)
    return AlterClientQuotasResponse(changes=[QuotaChangeResult(error=error) for error in errors])


def _error_of(change: QuotaChange, times: int) -> KafkaError | None:
    try:
        change.check()
    except KafkaError as error:
        return error
    return InvalidRequest("Duplicate client quota entity") if times > 1 else None


DESCRIBE_CLIENT_QUOTAS = Api(
    name="DescribeClientQuotas",
    summary="list the quotas of users, clients and addresses",
    handle=describe,
    rights=(on_cluster(AclOperation.DESCRIBE_CONFIGS),),
    key=48,
    versions=(0, 1),
)
ALTER_CLIENT_QUOTAS = Api(
    name="AlterClientQuotas",
    summary="set and remove quotas",
    handle=alter,
    rights=(on_cluster(AclOperation.ALTER_CONFIGS),),
    key=49,
    versions=(0, 1),
)

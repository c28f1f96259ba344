"""Errors on gRPC: errors of a partition or topic are in the response, errors of a whole request are a status."""

from __future__ import annotations

from typing import Any, NoReturn

import grpc

from sparklog.base.errors import (
    BrokerNotAvailable,
    ClusterAuthorizationFailed,
    DuplicateResource,
    FencedLeaderEpoch,
    GroupAuthorizationFailed,
    InvalidUpdateVersion,
    KafkaError,
    RecordListTooLarge,
    ResourceNotFound,
    SaslAuthenticationFailed,
    ThrottlingQuotaExceeded,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnknownLeaderEpoch,
    UnknownServerError,
)
from sparklog.v1 import records_pb2

ERROR_CODE = "error-code"
STOPPING = "the broker is stopping: try another, or the same later"


def error_message(error: KafkaError | None) -> records_pb2.Error | None:
    """Return the message for a result's `error`, or None if there was no error."""
    if error is None:
        return None
    return records_pb2.Error(code=error.code, name=error.name, message=str(error), retriable=error.retriable)


async def refuse(context: Any, error: KafkaError) -> NoReturn:
    """End the call with a status; never return. The trailing metadata `error-code` holds Kafka's error code.

    UNAVAILABLE           the broker is stopping; clients retry
    INTERNAL              a fault of the broker itself
    RESOURCE_EXHAUSTED    the request is too large, or the broker is processing too much
    NOT_FOUND             maintenance: the lease does not exist
    ALREADY_EXISTS        maintenance: another holder has the lease
    FAILED_PRECONDITION   maintenance: the plan is out of date
    PERMISSION_DENIED     the client may not do this
    UNAUTHENTICATED       no rule applies to the client's certificate
    INVALID_ARGUMENT      the request is invalid
    """
    match error:
        case BrokerNotAvailable():
            status = grpc.StatusCode.UNAVAILABLE
        case RecordListTooLarge() | ThrottlingQuotaExceeded():
            status = grpc.StatusCode.RESOURCE_EXHAUSTED
        case UnknownServerError():
            status = grpc.StatusCode.INTERNAL
        case ResourceNotFound():
            status = grpc.StatusCode.NOT_FOUND
        case DuplicateResource():
            status = grpc.StatusCode.ALREADY_EXISTS
        case InvalidUpdateVersion() | FencedLeaderEpoch() | UnknownLeaderEpoch():
            status = grpc.StatusCode.FAILED_PRECONDITION
        case (
            TopicAuthorizationFailed()
            | GroupAuthorizationFailed()
            | ClusterAuthorizationFailed()
            | TransactionalIdAuthorizationFailed()
        ):
            status = grpc.StatusCode.PERMISSION_DENIED
        case SaslAuthenticationFailed():
            status = grpc.StatusCode.UNAUTHENTICATED
        case _:
            status = grpc.StatusCode.INVALID_ARGUMENT
    await context.abort(status, f"{error.name}: {error}", trailing_metadata=((ERROR_CODE, str(error.code)),))
    raise AssertionError("abort() does not return")

"""DescribeUserScramCredentials and AlterUserScramCredentials in Kafka's protocol."""

from __future__ import annotations

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import user_scram_credentials
from sparklog.broker.apis.user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    CredentialDeletion,
    CredentialUpsertion,
    DescribeUserScramCredentialsRequest,
)
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.responses import message_of
from sparklog.server.kafka.translation import KafkaCall, Translation, WideArrays


async def _describe(call: KafkaCall, request: Message) -> Message:
    wanted = DescribeUserScramCredentialsRequest(users=[each.name for each in request.users or ()])
    response = await call.serve(user_scram_credentials.DESCRIBE_USER_SCRAM_CREDENTIALS, wanted)
    return call.answer(
        error_message=None,
        results=[
            {
                "user": found.user,
                "error_code": found.error,
                "error_message": message_of(found.error),
                "credential_infos": [
                    {"mechanism": int(mechanism), "iterations": iterations}
                    for mechanism, iterations in found.iterations.items()
                ],
            }
            for found in response.users
        ],
    )


def _refuse_to_describe(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return call.answer(error_code=error, error_message=str(error), results=())


async def _alter(call: KafkaCall, request: Message) -> Message:
    wanted = AlterUserScramCredentialsRequest(
        deletions=[CredentialDeletion(user=each.name, mechanism=each.mechanism) for each in request.deletions],
        upsertions=[
            CredentialUpsertion(
                user=each.name,
                mechanism=each.mechanism,
                iterations=each.iterations,
                salt=bytes(each.salt),
                salted_password=bytes(each.salted_password),
            )
            for each in request.upsertions
        ],
    )
    response = await call.serve(user_scram_credentials.ALTER_USER_SCRAM_CREDENTIALS, wanted)
    return call.answer(results=[_result(user, error) for user, error in response.results.items()])


def _refuse_to_alter(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    users = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    return call.answer(results=[_result(user, error) for user in users])


def _result(user: str, error: KafkaError | None) -> dict[str, object]:
    return {"user": user, "error_code": error, "error_message": message_of(error)}


DESCRIBE_USER_SCRAM_CREDENTIALS = Translation(
    api=user_scram_credentials.DESCRIBE_USER_SCRAM_CREDENTIALS,
    serve=_describe,
    refuse=_refuse_to_describe,
    wide=WideArrays(("users",), ("results",)),
)
ALTER_USER_SCRAM_CREDENTIALS = Translation(
    api=user_scram_credentials.ALTER_USER_SCRAM_CREDENTIALS,
    serve=_alter,
    refuse=_refuse_to_alter,
    max_elements=1_000,
)

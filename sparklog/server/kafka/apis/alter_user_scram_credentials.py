"""AlterUserScramCredentials in Kafka's protocol."""

from __future__ import annotations

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import alter_user_scram_credentials
from sparklog.broker.apis.alter_user_scram_credentials import AlterUserScramCredentialsRequest, Deletion, Upsertion
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.translation import KafkaCall, Translation


async def serve(call: KafkaCall, request: Message) -> Message:
    wanted = AlterUserScramCredentialsRequest(
        deletions=[Deletion(user=each.name, mechanism=each.mechanism) for each in request.deletions],
        upsertions=[
            Upsertion(
                user=each.name,
                mechanism=each.mechanism,
                iterations=each.iterations,
                salt=bytes(each.salt),
                salted_password=bytes(each.salted_password),
            )
            for each in request.upsertions
        ],
    )
    response = await call.broker.serve(alter_user_scram_credentials.API, wanted)
    return call.answer(results=[_result(user, error) for user, error in response.results.items()])


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    users = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    return call.answer(results=[_result(user, error) for user in users])


def _result(user: str, error: KafkaError | None) -> dict[str, object]:
    return {"user": user, "error_code": error, "error_message": str(error) if error else None}


TRANSLATION = Translation(api=alter_user_scram_credentials.API, serve=serve, refuse=refuse, max_elements=1_000)

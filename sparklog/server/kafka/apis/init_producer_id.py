"""InitProducerId in Kafka's protocol. From version 3 on, it has the producer's previous id and epoch (KIP-360)."""

from __future__ import annotations

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import init_producer_id
from sparklog.broker.apis.init_producer_id import NO_EPOCH, NO_PRODUCER_ID, InitProducerIdRequest
from sparklog.server.kafka.apis.transactions import known_error
from sparklog.server.kafka.messages import Message, whole_ms
from sparklog.server.kafka.translation import KafkaCall, Translation

FIRST_WITH_FENCED = 4


async def serve(call: KafkaCall, request: Message) -> Message:
    """Return the producer id and epoch; both are -1 with an error, which is translated for older versions."""
    wanted = InitProducerIdRequest(
        transactional_id=request.transactional_id,
        transaction_timeout_ms=whole_ms(request.transaction_timeout),
        producer_id=getattr(request, "producer_id", NO_PRODUCER_ID),
        producer_epoch=getattr(request, "producer_epoch", NO_EPOCH),
    )
    try:
        given = await call.serve(init_producer_id.API, wanted)
    except KafkaError as error:
        known = known_error(error, knows_fenced=call.version >= FIRST_WITH_FENCED)
        return call.answer(error_code=known, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
    return call.answer(producer_id=given.producer_id, producer_epoch=given.producer_epoch)


TRANSLATION = Translation(api=init_producer_id.API, serve=serve)

"""The APIs of Kafka's wire protocol: one file for each, and this table of them."""

from __future__ import annotations

from sparklog.server.kafka.apis import api_versions, fetch, init_producer_id, list_offsets, metadata, produce
from sparklog.server.kafka.translation import Translation

TRANSLATIONS: tuple[Translation, ...] = (
    produce.TRANSLATION,
    fetch.TRANSLATION,
    list_offsets.TRANSLATION,
    metadata.TRANSLATION,
    api_versions.TRANSLATION,
    init_producer_id.TRANSLATION,
)

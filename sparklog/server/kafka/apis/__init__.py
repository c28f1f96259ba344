"""The APIs of Kafka's wire protocol: one file for each, and this table of them."""

from __future__ import annotations

from sparklog.server.kafka.apis import (
    alter_configs,
    alter_user_scram_credentials,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    describe_log_dirs,
    describe_user_scram_credentials,
    fetch,
    incremental_alter_configs,
    init_producer_id,
    list_config_resources,
    list_offsets,
    metadata,
    produce,
    sasl_authenticate,
    sasl_handshake,
)
from sparklog.server.kafka.translation import Translation

TRANSLATIONS: tuple[Translation, ...] = (
    produce.TRANSLATION,
    fetch.TRANSLATION,
    list_offsets.TRANSLATION,
    metadata.TRANSLATION,
    api_versions.TRANSLATION,
    init_producer_id.TRANSLATION,
    create_topics.TRANSLATION,
    delete_topics.TRANSLATION,
    create_partitions.TRANSLATION,
    delete_records.TRANSLATION,
    describe_configs.TRANSLATION,
    alter_configs.TRANSLATION,
    incremental_alter_configs.TRANSLATION,
    list_config_resources.TRANSLATION,
    describe_log_dirs.TRANSLATION,
    sasl_handshake.TRANSLATION,
    sasl_authenticate.TRANSLATION,
    describe_user_scram_credentials.TRANSLATION,
    alter_user_scram_credentials.TRANSLATION,
)

"""The steps with which a starting broker opens its cluster store, and restores what the store has lost.

open              open the store, then the logs with their topics' configurations; find or choose the ids of both
confirm_missing   wait until topics with folders here and none in the store are known to be deleted
restore           restore what the store has lost, and adopt topics that it does not know (restoration.py)
note_change       record the number of the store's newest change, so that a later start detects lost changes
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable
from uuid import UUID

from sparklog.base.clock import Clock
from sparklog.base.config import BrokerConfig
from sparklog.base.dynamic_config import DynamicConfig
from sparklog.base.errors import StoreError
from sparklog.base.fs import Fs
from sparklog.base.ids import TopicPartition
from sparklog.broker.restoration import (
    adopt,
    has_lost_changes,
    is_replaced,
    missing_topics,
    restore,
    restore_broker_keys,
    restore_lost_configs,
    restore_states,
    restore_topics,
)
from sparklog.cluster import brokers, producer_ids
from sparklog.cluster.engines import open_store
from sparklog.cluster.identity import SURE_S, find_or_create_cluster_id, find_or_create_store_id, find_store_id
from sparklog.cluster.store import Store
from sparklog.cluster.topics import ALL_BROKERS, TopicStore
from sparklog.log.directory.manager import LogManager

PROGRESS_EVERY = 100  # logs, while they are opened
logger = logging.getLogger(__name__)


class StoreStartup:
    """The cluster store of one broker at its start. Methods block, except `confirm_missing`, and raise StoreError."""

    def __init__(
        self,
        config: BrokerConfig,
        dynamic: DynamicConfig,
        logs: LogManager,
        clock: Clock,
        new_id: Callable[[], UUID],
        store: Store | None,
    ) -> None:
        """store: used instead of the configured one"""
        self.id = ""
        """The store's id; empty before `open`."""
        self.cluster_id = ""
        self.has_logs = False
        """Whether the logs have been opened."""
        self._config = config
        self._dynamic = dynamic
        self._logs = logs
        self._clock = clock
        self._new_id = new_id
        self._store = store
        self._had_id = False

    @property
    def store(self) -> Store:
        """The open store."""
        assert self._store is not None
        return self._store

    @property
    def topics(self) -> TopicStore:
        """The topics in the store, with the defaults of the present configuration."""
        return TopicStore(self.store, self._dynamic.current.topic_defaults)

    def open(self, fs: Fs) -> None:
        """Open the store, then the logs. fs: the file system of the log directories"""
        if self._store is None:
            fs.make_dir(self._config.log_dirs[0])
            self._logs.make_room()
            self._store = open_store(self._config)
        self.topics.make_paths()
        self._load_broker_overrides()
        topics = self.topics
        self._logs.load({name: topics.load_config(name) for name in topics.names()}, progress=_log_progress)
        self.has_logs = True
        known = self._logs.ownership.find_cluster_id()
        self.cluster_id = find_or_create_cluster_id(self.store, known or self._new_cluster_id())
        self._logs.ownership.claim(self.cluster_id)
        candidate = self._new_cluster_id()
        self.id = find_or_create_store_id(self.store, candidate)
        self._had_id = self.id != candidate

    async def confirm_missing(self) -> None:
        """Wait `SURE_S` if topics are missing in the store. Raises StoreError if the store has lost everything."""
        missing = await asyncio.to_thread(missing_topics, self._logs, self.topics, self.id)
        if missing:
            await asyncio.sleep(SURE_S)
            if await asyncio.to_thread(find_store_id, self.store) != self.id:
                raise StoreError(
                    f"the cluster store has just lost everything, {', '.join(sorted(missing))} included: start again"
                )

    def restore(self) -> None:
        """Restore what the store has lost, and adopt topics. A store without an id may be a copy older than its id."""
        logs, store, broker_id = self._logs, self.store, self._config.broker_id
        others = brokers.load(store).keys() - {broker_id}
        is_new = is_replaced(logs, self.id)
        has_lost = has_lost_changes(logs, self.topics, store, others, is_replaced=is_new and self._had_id)
        if is_new or has_lost:
            restore_broker_keys(logs, self.topics, has_lost_changes=has_lost)
            self._load_broker_overrides()
            restored = self.topics
            logs.update_configs({name: restored.load_config(name) for name in restored.names()})
        config, topics = self._dynamic.current, self.topics
        restore_lost_configs(logs, topics, config)
        if not (self._had_id or is_new):
            producer_ids.begin(store, broker_id)
        if has_lost:
            restore(logs, topics, config, store)
        if is_new or has_lost:
            producer_ids.leap(store, broker_id, self._clock.time_ms())
            restore_topics(logs, topics, config, store)
        restore_states(logs, topics, store)
        adopt(logs, topics, config, others=others, has_lost_changes=is_new or has_lost, new_id=self._new_id)
        if is_new or has_lost:
            logs.note_change(store.newest_change(), self.id)

    def note_change(self) -> None:
        """Record the number of the store's newest change; log a warning if the store cannot be reached."""
        try:
            self._logs.note_change(self.store.newest_change(), self.id)
        except StoreError as error:
            logger.warning("how far the cluster store has come is not noted: %s", error)

    def close(self) -> None:
        """Close the store, if it is open."""
        if self._store:
            self._store.close()

    def _load_broker_overrides(self) -> None:
        """Apply the keys that were set for brokers at run time."""
        changed = self.topics.load_broker_overrides()
        self._dynamic.set_overrides(changed.get(ALL_BROKERS, {}), changed.get(self._config.broker_id, {}))

    def _new_cluster_id(self) -> str:
        return base64.urlsafe_b64encode(self._new_id().bytes).decode().rstrip("=")


def _log_progress(done: int, total: int, _: TopicPartition) -> None:
    if done % PROGRESS_EVERY == 0 or done == total:
        logger.info("opened %d of %d logs", done, total)

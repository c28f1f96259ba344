"""One broker, put together: the one place that knows all its parts. `server/node.py` opens its doors.

Start: open the cluster store (`cluster.sqlite` in the first log directory), lock the log directories, open and recover
the logs, find or choose the cluster's id, take up the topics, register the broker, start the scheduled work.

Stop: long polls end, the doors finish what is in flight, scheduled work stops, high watermarks are written, the logs
are flushed and closed with the marker of a clean stop.

The event loop never waits for a disk: flushing, checkpoints and deletion of files run in threads.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import random
import uuid
from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from sparklog import __version__
from sparklog.base.addresses import Address
from sparklog.base.clock import Clock, SystemClock
from sparklog.base.config import BrokerConfig
from sparklog.base.config_keys import MAX_INT
from sparklog.base.errors import KafkaError, TopicAlreadyExists, UnknownServerError
from sparklog.base.fs import Fs, LocalFs
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.apis import APIS
from sparklog.broker.fetch_sessions import FetchSessions
from sparklog.broker.follower_fetches import LEADER_RATE, FollowerFetches, throttled_rate
from sparklog.broker.metrics import Metrics
from sparklog.broker.replacements import Replacements
from sparklog.broker.services import Services
from sparklog.broker.topics import Topics
from sparklog.broker.versions import ApiVersion
from sparklog.cluster.identity import find_or_create_cluster_id, register_broker
from sparklog.cluster.messages import UpdateMetadata
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.model import BrokerInfo
from sparklog.cluster.producer_ids import ProducerIds
from sparklog.cluster.sqlite import SqliteStore
from sparklog.cluster.store import Store
from sparklog.cluster.topics import TopicStore
from sparklog.cluster.users import UserStore
from sparklog.group.coordinator import OFFSETS_TOPIC, GroupCoordinator
from sparklog.log.manager import LogManager
from sparklog.replica.manager import Replica, ReplicaManager
from sparklog.runtime.purgatory import Purgatory
from sparklog.runtime.schedule import Schedule

CLUSTER_STORE = "cluster.sqlite"
DELETE_INTERVAL_MS = 10_000
LEASE_INTERVAL_MS = 1_000
NO_LISTENERS: Mapping[str, Address] = MappingProxyType({})
PROGRESS_EVERY = 100  # logs, while starting
logger = logging.getLogger(__name__)

Request = TypeVar("Request")
Response = TypeVar("Response")


class Broker:
    """A broker without doors: `serve` is how requests come in."""

    services: Services

    def __init__(
        self, config: BrokerConfig, *, fs: Fs | None = None, clock: Clock | None = None, store: Store | None = None
    ) -> None:
        """`store` is the cluster store to use instead of a file in the first log directory."""
        self.config = config
        self.metrics = Metrics(api.name for api in APIS)
        self.is_stopping = False
        self._fs = fs or LocalFs()
        self._clock = clock or SystemClock()
        self._store = store
        self._waiting: Purgatory[TopicPartition] = Purgatory()
        self._schedule = Schedule()
        self._logs = LogManager(
            self._fs,
            config.log_dirs,
            config,
            self._clock,
            on_dir_failure=self._dir_failed,
            jitter=random.randrange,
        )
        self._is_open = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self, grpc_address: str, listeners: Mapping[str, Address] = NO_LISTENERS) -> None:
        """Be ready to serve; `grpc_address` and `listeners` (Kafka's, by name) are what clients are told.

        Raises ConfigError where a log directory is used by another broker or belongs to another one.
        """
        self._loop = asyncio.get_running_loop()
        info = BrokerInfo(
            broker_id=self.config.broker_id,
            grpc_address=grpc_address,
            listeners=listeners,
            rack=self.config.broker_rack,
            version=__version__,
        )
        store, topic_store, cluster_id = await asyncio.to_thread(self._open)
        self.services = self._put_together(info, store, topic_store, cluster_id)
        self.services.metadata.update(
            UpdateMetadata(controller_id=info.broker_id, controller_epoch=0, broker_epoch=-1, brokers=(info,))
        )
        await self.services.topics.load()
        self.services.groups.start()
        await asyncio.to_thread(register_broker, store, info)
        self._start_schedule()

    def _put_together(self, info: BrokerInfo, store: Store, topic_store: TopicStore, cluster_id: str) -> Services:
        metadata = MetadataCache()
        replicas = ReplicaManager(self._fs, self._logs, self._waiting.check)
        topics = Topics(self.config, topic_store, metadata, self._logs, replicas)
        return Services(
            api_versions=tuple(ApiVersion(api.key, *api.versions) for api in APIS if api.key is not None),
            config=self.config,
            clock=self._clock,
            cluster_id=cluster_id,
            info=info,
            metadata=metadata,
            users=UserStore(store),
            topics=topics,
            groups=GroupCoordinator(
                config=self.config,
                clock=self._clock,
                topics=metadata,
                replicas=replicas,
                waiting=self._waiting,
                create_offsets_topic=partial(_create_offsets_topic, topics, self.config),
                new_id=uuid.uuid4,
            ),
            logs=self._logs,
            replicas=replicas,
            replacements=Replacements(replicas, self._clock, self.metrics, lambda: uuid.uuid4().hex),
            producer_ids=ProducerIds(store, self.config.broker_id, above=self._logs.greatest_producer_id),
            metrics=self.metrics,
            fetch_sessions=FetchSessions(
                self.config.max_incremental_fetch_session_cache_slots, partial(random.randint, 1, MAX_INT)
            ),
            follower_fetches=FollowerFetches(
                self.config.max_incremental_fetch_session_cache_slots,
                partial(random.randint, 1, MAX_INT),
                throttled_rate(self.config, metadata, LEADER_RATE),
            ),
            waiting=self._waiting,
        )

    def _open(self) -> tuple[Store, TopicStore, str]:
        """Blocks: the cluster store, then the logs with their topics' configurations, then the cluster's id."""
        if self._store is None:
            self._fs.make_dir(self.config.log_dirs[0])
            self._store = SqliteStore(f"{self.config.log_dirs[0]}/{CLUSTER_STORE}")
        store = self._store
        topics = TopicStore(store, self.config.topic_defaults)
        topics.make_paths()
        self._logs.load({name: topics.load(name).config for name in topics.names()}, progress=_log_progress)
        self._is_open = True
        cluster_id = find_or_create_cluster_id(store, self._logs.find_cluster_id() or _new_cluster_id())
        self._logs.claim(cluster_id)
        return store, topics, cluster_id

    def _dir_failed(self, path: str, error: OSError) -> None:
        """Called on any thread: the partitions of the directory leave, and who waits for them is told."""
        if self._loop and hasattr(self, "services"):
            self._loop.call_soon_threadsafe(self.services.replicas.set_dir_offline, path, str(error))

    async def serve(self, api: Api[Request, Response], request: Request) -> Response:
        """The answer to a request; raises KafkaError where the request as a whole is refused."""
        figures = self.metrics.requests[api.name]
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            return await api.handle(self.services, request)
        except KafkaError:
            figures.refused += 1
            raise
        except Exception as error:
            figures.refused += 1
            logger.exception("%s failed", api.name)
            raise UnknownServerError(f"{api.name} failed in the broker; its log says why") from error
        finally:
            figures.observe(loop.time() - started)

    def prepare_stop(self) -> None:
        """Answer the requests that wait, and let none wait any more."""
        self.is_stopping = True
        if hasattr(self, "services"):
            self.services.groups.stop()
        self._waiting.release_all()

    async def stop(self) -> None:
        """Flush and close everything, once the doors are closed."""
        self.prepare_stop()
        await self._schedule.stop()
        if hasattr(self, "services"):
            await self.services.replacements.stop()
            await self.services.groups.loaded()  # nothing reads logs any more
            await self.services.topics.settled()
            await self._checkpoint_high_watermarks()
        if self._is_open:
            await asyncio.to_thread(self._logs.close)
        if self._store:
            await asyncio.to_thread(self._store.close)

    @property
    def waiting_requests(self) -> int:
        """Fetches and produces that wait for records or replicas."""
        return self._waiting.waiting

    def replicas(self) -> Iterator[Replica]:
        """The partitions that this broker has; none before its start."""
        return iter(self.services.replicas) if hasattr(self, "services") else iter(())

    def _start_schedule(self) -> None:
        config, logs, clock = self.config, self._logs, self._clock
        high_watermark = self.services.replicas.find_high_watermark
        every = self._schedule.every
        for interval_ms, name, work in (
            (
                config.log_flush_scheduler_interval_ms,
                "flushing logs",
                lambda: logs.flush_due(clock.monotonic_ms()),
            ),
            (
                config.log_flush_offset_checkpoint_interval_ms,
                "writing recovery points",
                logs.checkpoint_recovery_points,
            ),
            (config.log_flush_start_offset_checkpoint_interval_ms, "writing log starts", logs.checkpoint_log_starts),
            (
                config.log_retention_check_interval_ms,
                "retention",
                lambda: logs.apply_retention(clock.time_ms(), high_watermark),
            ),
            (
                config.producer_id_expiration_check_interval_ms,
                "forgetting producers",
                lambda: logs.expire_producers(clock.time_ms()),
            ),
            (DELETE_INTERVAL_MS, "deleting removed files", lambda: logs.delete_expired(clock.monotonic_ms())),
        ):
            every(interval_ms, name, partial(asyncio.to_thread, work))
        every(
            config.replica_high_watermark_checkpoint_interval_ms,
            "writing high watermarks",
            self._checkpoint_high_watermarks,
        )
        every(LEASE_INTERVAL_MS, "ending leases", self.services.replacements.expire)
        every(config.offsets_retention_check_interval_ms, "expiring offsets", self.services.groups.expire)

    async def _checkpoint_high_watermarks(self) -> None:
        replicas = self.services.replicas
        await asyncio.to_thread(replicas.write_high_watermarks, replicas.high_watermarks())


async def _create_offsets_topic(topics: Topics, config: BrokerConfig) -> None:
    try:
        await topics.create(
            OFFSETS_TOPIC,
            partitions=config.offsets_topic_num_partitions,
            replication_factor=config.offsets_topic_replication_factor,
            overrides={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
    except TopicAlreadyExists:
        return  # a request that came at the same moment was first


def _log_progress(done: int, total: int, _: TopicPartition) -> None:
    if done % PROGRESS_EVERY == 0 or done == total:
        logger.info("opened %d of %d logs", done, total)


def _new_cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")

"""One broker: its start, its stop, and its scheduled work in between. `server/node.py` opens its listeners.

    join      open the cluster store; lock the log directories, open and recover the logs; find or choose the cluster
              id; adopt topics that the store does not know; register; stand for election as controller
    ready     wait until the controller has sent the cluster's state and this broker leads every partition that it can.
              Client requests wait until then; requests of other brokers are served at once
    leave     hand leaderships over to other brokers (controlled shutdown)
    stop      end the long polls and the scheduled work, resign as controller, stop the fetchers, write the high
              watermarks, close the logs with the marker of a clean stop, then end the session

A single broker takes the same steps: it is its own controller, and its requests to itself go straight to its handlers.
A killed broker that restarts replaces its registration and its controllership at once (cluster/brokers.py).

The event loop never waits for a disk or the store: flushes, checkpoints and file deletions run in threads.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import random as randomness
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TypeVar
from uuid import UUID

from sparklog import __version__
from sparklog.base.addresses import Address
from sparklog.base.clock import Clock, SystemClock
from sparklog.base.config import BrokerConfig
from sparklog.base.dynamic_config import DynamicConfig
from sparklog.base.errors import (
    ConnectionLoss,
    KafkaError,
    RequestTimedOut,
    SessionExpired,
    StoreError,
    UnknownServerError,
)
from sparklog.base.fs import Fs, LocalFs
from sparklog.base.ids import TopicPartition
from sparklog.base.tracing import RequestTracing, Tracing
from sparklog.broker.api import Api, Handlers
from sparklog.broker.apis import APIS, PEER_APIS
from sparklog.broker.client_requests import ClientRequests
from sparklog.broker.client_telemetry import Pushed
from sparklog.broker.composition import Dependencies, compose
from sparklog.broker.consumer_lags import NO_GROUPS, GroupFigures
from sparklog.broker.handing_over import hand_over
from sparklog.broker.metrics import LoopDelay, Metrics
from sparklog.broker.replica_moves import MOVES_INTERVAL_MS
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
from sparklog.broker.services import Services
from sparklog.broker.slow_requests import SlowRequests
from sparklog.broker.store_guard import StoreGuard
from sparklog.broker.strays import STRAYS_INTERVAL_MS
from sparklog.cluster import brokers, producer_ids
from sparklog.cluster.engines import open_store
from sparklog.cluster.identity import SURE_S, find_or_create_cluster_id, find_or_create_store_id, find_store_id
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.model import BrokerInfo, Topic
from sparklog.cluster.peers import Peers
from sparklog.cluster.store import Store
from sparklog.cluster.topics import ALL_BROKERS, TopicStore
from sparklog.log.directory.manager import LogManager
from sparklog.log.directory.open_files import OpenFiles
from sparklog.replica.high_watermarks import HighWatermarks
from sparklog.replica.manager import Replica
from sparklog.replica.messages import NO_LEADER
from sparklog.runtime.purgatory import Purgatory
from sparklog.runtime.remote_waits import waiting_for_others
from sparklog.runtime.schedule import PeriodicTasks
from sparklog.runtime.slices import Slices, of_many
from sparklog.security.principal_mapping import PrincipalMapper
from sparklog.security.quotas import ClientQuotas, Windows

DELETE_INTERVAL_MS = 10_000
LEASE_INTERVAL_MS = 1_000
ROOM_INTERVAL_MS = 1_000
LOOP_DELAY_INTERVAL_MS = 20
NO_LISTENERS: Mapping[str, Address] = MappingProxyType({})
PROGRESS_EVERY = 100  # logs, while starting
REPLICAS_AT_ONCE = 500
"""Of which work on each takes a millisecond."""
READY_TIMEOUT_MS = 60_000
logger = logging.getLogger(__name__)

Request = TypeVar("Request")
Response = TypeVar("Response")


class Broker:
    """A broker without listeners: requests arrive through `serve`."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        fs: Fs | None = None,
        clock: Clock | None = None,
        store: Store | None = None,
        peers: Peers | None = None,
        random: randomness.Random | None = None,
        on_lost_store: Callable[[], None] = lambda: None,
    ) -> None:
        """`store` replaces the configured one. `peers` is None if there are no other brokers.

        on_lost_store: called on the event loop once the cluster store has lost topics: the broker must be stopped
        """
        self.config = config
        self.principals = PrincipalMapper(config.ssl_principal_mapping_rules)
        """Makes the principals of clients with certificates."""
        self.dynamic = DynamicConfig(config)
        """The configuration as it is now; `config` is what the broker was started with."""
        self.metadata = MetadataCache(self.dynamic)
        """The cluster's state, as the controller has sent it."""
        self.metrics = Metrics(api.name for api in (*APIS, *PEER_APIS.values()))
        self.client_quotas = ClientQuotas(
            Windows(
                burst_s=config.quota_window_size_seconds,
                mutations_s=config.controller_quota_window_num * config.controller_quota_window_size_seconds,
            )
        )
        """The quotas of clients, for the listeners."""
        self.loop_delay = LoopDelay(LOOP_DELAY_INTERVAL_MS / 1000)
        """Measured if metrics are served."""
        self.is_stopping = False
        self.slices = Slices()
        self.slow_requests = SlowRequests(config.request_log_slow_ms)
        self.tracing: RequestTracing | None = None
        """Makes spans of requests; None: there are none."""
        self._fs = fs or LocalFs()
        self.clock = clock or SystemClock()
        self._store = store
        self._peers = peers
        self._random = random or randomness.SystemRandom()
        self._waiting: Purgatory[TopicPartition] = Purgatory()
        self._schedule = PeriodicTasks()
        self._logs = LogManager(
            self._fs,
            config.log_dirs,
            config,
            self.clock,
            on_dir_failure=self._dir_failed,
            jitter=self._random.randrange,
            new_id=self._new_id,
            open_files=OpenFiles.of_process(),
        )
        self.dynamic.subscribe(self._logs.configure)
        self.dynamic.subscribe(lambda config: self.slow_requests.set_slow_ms(config.request_log_slow_ms))
        self._is_open = False
        self._store_id = ""
        self._on_lost_store = on_lost_store
        self._has_left = False
        self._is_ready = asyncio.Event()
        self.clients = ClientRequests(
            self.serve, self.metrics, self._is_ready, has_authorizer=bool(config.authorizer_class_name)
        )
        """Serves the requests of clients, which may have only some rights."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._services: Services | None = None

    @property
    def services(self) -> Services:
        """The broker's parts. Raises RuntimeError before `join` has made them."""
        if self._services is None:
            raise RuntimeError(f"broker {self.config.broker_id} has not joined its cluster yet")
        return self._services

    @property
    def handlers(self) -> Handlers:
        """The handlers, for the steps of a listener's request that are no requests themselves: `serve` counts those."""
        return self.services.handlers

    @property
    def has_services(self) -> bool:
        """Whether `join` has made the broker's parts."""
        return self._services is not None

    async def start(self, grpc_address: str, listeners: Mapping[str, Address] = NO_LISTENERS) -> None:
        """Run `join`, then `ready`: for a broker that others can already reach."""
        await self.join(grpc_address, listeners)
        await self.ready()

    async def join(self, grpc_address: str, listeners: Mapping[str, Address] = NO_LISTENERS) -> None:
        """Join the cluster. `grpc_address` and `listeners` (Kafka's, by name) are the addresses that clients are given.

        Raises ConfigError if another broker uses a log directory, a log directory belongs to another broker, or another
        broker has this broker's id; StoreError if the store cannot be reached.
        """
        self._loop = asyncio.get_running_loop()
        info = BrokerInfo(
            broker_id=self.config.broker_id,
            grpc_address=grpc_address,
            listeners=listeners,
            rack=self.config.broker_rack,
            version=__version__,
        )
        if self.config.tracing_otlp_endpoint:
            self.tracing = await asyncio.to_thread(self._open_tracing)
        store, cluster_id, had_id = await asyncio.to_thread(self._open)
        await self._until_sure(store)
        await asyncio.to_thread(self._restore, store, had_id=had_id)
        self._services = services = compose(
            Dependencies(
                config=self.config, dynamic=self.dynamic, info=info, cluster_id=cluster_id, fs=self._fs,
                clock=self.clock, random=self._random, store=store,
                store_guard=StoreGuard(
                    store, TopicStore(store, self.config.topic_defaults), self._store_id, self._lost_store
                ),
                logs=self._logs, metadata=self.metadata,
                metrics=self.metrics, slices=self.slices, waiting=self._waiting, peers=self._peers, serve=self.serve,
                client_quotas=self.client_quotas,
            )
        )  # fmt: skip
        self.clients.decide_by(services.accesses)
        if services.authorizer.is_enabled:  # other brokers ask before the controller has sent the ACLs
            services.authorizer.set_acls(await asyncio.to_thread(services.acl_store.load))
        await services.registration.start()
        services.store_guard.start()
        services.history.start()
        await services.controller.start()
        self._start_schedule(services)

    async def ready(self) -> None:
        """Wait until client requests can be served, for at most `READY_TIMEOUT_MS`, then serve them in any case."""
        try:
            if not await self.metadata.wait_until(self._leads_what_it_can, READY_TIMEOUT_MS):
                logger.warning("broker %d serves before a controller has told it to lead", self.config.broker_id)
            await asyncio.to_thread(self._note_change)
        finally:
            self._is_ready.set()

    def _note_change(self) -> None:
        """Record the store's newest change, so that a later start detects a store that has lost changes. Blocks."""
        assert self._store is not None
        try:
            self._logs.note_change(self._store.newest_change(), self._store_id)
        except StoreError as error:
            logger.warning("how far the cluster store has come is not noted: %s", error)

    def _leads_what_it_can(self) -> bool:
        """Whether the controller knows this registration and has elected leaders where it can.

        Every partition that this broker is in sync for must be led, here or elsewhere, or be in a failed log directory.
        """
        services, here = self.services, self.config.broker_id
        metadata, replicas = services.metadata, services.replicas
        return self._is_known() and all(
            partition.leader not in (here, NO_LEADER) or here not in partition.in_sync_replicas
            or _is_led(replicas.find(name)) or name in replicas.offline
            for topic in metadata
            for name, partition in topic.named_partitions()
        )  # fmt: skip

    def _is_known(self) -> bool:
        """Whether the controller has sent the cluster's state, with this broker's present registration."""
        info = self.metadata.brokers.get(self.config.broker_id)
        return self.metadata.is_complete and info is not None and info.epoch >= self.services.registration.epoch

    def _open_tracing(self) -> RequestTracing:
        """Prepare the spans of requests. Raises ConfigError. Blocks."""
        resource = {"service.instance.id": str(self.config.broker_id), "service.version": __version__}
        tracing = Tracing(self.config.tracing_otlp_endpoint, "sparklog", resource)
        return RequestTracing(tracing, self.config.tracing_sample_every)

    def _open(self) -> tuple[Store, str, bool]:
        """Open the store, then the logs with their topics' configurations. Blocks.

        Return the store, the cluster id, and whether the store had an id.
        """
        config = self.config
        if self._store is None:
            self._fs.make_dir(config.log_dirs[0])
            self._logs.make_room()
            self._store = open_store(config)
        store = self._store
        TopicStore(store, config.topic_defaults).make_paths()
        self._load_broker_overrides(store)
        topics = TopicStore(store, self.dynamic.current.topic_defaults)
        self._logs.load({name: topics.load_config(name) for name in topics.names()}, progress=_log_progress)
        self._is_open = True
        cluster_id = find_or_create_cluster_id(store, self._logs.ownership.find_cluster_id() or self._new_cluster_id())
        self._logs.ownership.claim(cluster_id)
        candidate = self._new_cluster_id()
        self._store_id = find_or_create_store_id(store, candidate)
        return store, cluster_id, self._store_id != candidate

    async def _until_sure(self, store: Store) -> None:
        """Wait until topics that the store does not have surely were deleted. Raises StoreError if it has lost them."""
        topics = TopicStore(store, self.config.topic_defaults)
        missing = await asyncio.to_thread(missing_topics, self._logs, topics, self._store_id)
        if missing:
            await asyncio.sleep(SURE_S)
            if await asyncio.to_thread(find_store_id, store) != self._store_id:
                raise StoreError(
                    f"the cluster store has just lost everything, {', '.join(sorted(missing))} included: start again"
                )

    def _load_broker_overrides(self, store: Store) -> None:
        """Apply the keys that were set for brokers at run time. Blocks."""
        changed = TopicStore(store, self.config.topic_defaults).load_broker_overrides()
        self.dynamic.set_overrides(changed.get(ALL_BROKERS, {}), changed.get(self.config.broker_id, {}))

    def _restore(self, store: Store, *, had_id: bool) -> None:
        """Restore what the store has lost. Blocks. A store that had no id may have gone back behind its creation."""
        logs, topics = self._logs, TopicStore(store, self.dynamic.current.topic_defaults)
        others = brokers.load(store).keys() - {self.config.broker_id}
        is_new = is_replaced(logs, self._store_id)
        has_lost = has_lost_changes(logs, topics, store, others, is_replaced=is_new and had_id)
        if is_new or has_lost:
            restore_broker_keys(logs, topics, has_lost_changes=has_lost)
            self._load_broker_overrides(store)
            topics = TopicStore(store, self.dynamic.current.topic_defaults)
            logs.update_configs({name: topics.load_config(name) for name in topics.names()})
        config = self.dynamic.current
        restore_lost_configs(logs, topics, config)
        if has_lost:
            restore(logs, topics, config, store)
        if is_new or has_lost:
            producer_ids.leap(store, config.broker_id, self.clock.time_ms())
            restore_topics(logs, topics, config, store)
        restore_states(logs, topics, store)
        adopt(logs, topics, config, others=others, has_lost_changes=is_new or has_lost, new_id=self._new_id)
        if is_new or has_lost:
            logs.note_change(store.newest_change(), self._store_id)

    def _new_id(self) -> UUID:
        return UUID(int=self._random.getrandbits(128), version=4)

    def _new_cluster_id(self) -> str:
        return base64.urlsafe_b64encode(self._new_id().bytes).decode().rstrip("=")

    def _dir_failed(self, path: str, error: OSError) -> None:
        """Take the directory's partitions offline and answer the requests that wait for them. Called on any thread."""
        if self._loop and self._services:
            self._loop.call_soon_threadsafe(self._lose_dir, path, str(error))

    def _lose_dir(self, path: str, why: str) -> None:
        self.services.replicas.set_dir_offline(path, why)
        self.services.registration.tell_of_failed_disk()

    def _lost_store(self) -> None:
        self._has_left = True  # there is no controller that could elect other leaders
        self._on_lost_store()

    @property
    def takes_records(self) -> bool:
        """Whether the broker accepts records: it is not stopping, and some log directory is not full."""
        return not self.is_stopping and len(self._logs.dirs) > len(self._logs.full_dirs)

    @property
    def not_ready(self) -> str:
        """Why clients should use other brokers than this one, which runs; empty if they should use it."""
        if not self.takes_records:
            return "each log directory is full or has failed"
        if self.services.store_guard.is_lost:
            return "the cluster store has lost topics: start all brokers again"
        if not (self.services.registration.is_registered and self._is_known()):
            return "the broker is not in its cluster: it waits for the cluster store or the controller"
        return ""

    def troubles(self) -> dict[str, object]:
        """Return the failed and full log directories and the offline partitions; empty if there are none."""
        offline = sorted(map(str, self._services.replicas.offline)) if self._services else []
        found = {
            "failed_log_dirs": dict(self._logs.failed_dirs),
            "full_log_dirs": list(self._logs.full_dirs),
            "offline_partitions": offline,
        }
        return {name: trouble for name, trouble in found.items() if trouble}

    async def serve(self, api: Api[Request, Response], request: Request) -> Response:
        """Handle a request and return its response. Raises KafkaError if the whole request is refused."""
        figures = self.metrics.requests[api.name]
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            if not self._is_ready.is_set() and type(request) not in PEER_APIS:
                with waiting_for_others():
                    await self._is_ready.wait()
            services = self._services
            assert services  # other brokers reach this one once it has joined
            return await services.handlers[api](request)
        except KafkaError:
            figures.count_refused()
            raise
        except (ConnectionLoss, SessionExpired) as error:
            figures.count_refused()
            raise RequestTimedOut(f"{api.name}: the cluster store cannot be reached: {error}") from error
        except Exception as error:
            figures.count_refused()
            logger.exception("%s failed", api.name)
            raise UnknownServerError(f"{api.name} failed in the broker; its log says why") from error
        finally:
            figures.observe(loop.time() - started)

    async def leave(self) -> None:
        """Hand this broker's leaderships over, if there are other brokers. Runs once; does nothing before the start."""
        config, services = self.config, self._services
        if self._has_left or self.is_stopping or services is None:
            return
        self._has_left = True
        if config.controlled_shutdown_enable and len(services.metadata.brokers) > 1:
            pauses_ms = config.controlled_shutdown_max_retries * config.controlled_shutdown_retry_backoff_ms
            with suppress(TimeoutError):  # nothing may keep a broker from stopping
                async with asyncio.timeout((pauses_ms + config.controlled_shutdown_timeout_ms) / 1000):
                    await hand_over(
                        services.registration.epoch,
                        clock=services.clock,
                        config=config,
                        metadata=services.metadata,
                        peers=services.peers,
                    )
        await services.history.flush()

    def prepare_stop(self) -> None:
        """Answer the waiting requests; from now on no request waits."""
        self.is_stopping = True
        self._is_ready.set()
        if self._services:
            self._services.groups.stop()
            self._services.transactions.stop()
            self.metadata.release()
            self._services.follower_fetches.waiting.release_all()
            self._services.session_waiting.release_all()
        self._waiting.release_all()

    async def stop(self) -> None:
        """Flush and close everything. Called after the listeners are closed."""
        await self.leave()
        self.prepare_stop()
        await self._schedule.stop()
        if self._services:
            await self._stop_services(self._services)
        if self.tracing:
            await asyncio.to_thread(self.tracing.close)
        if self._is_open:
            await asyncio.to_thread(self._logs.close)
        if self._store:
            await asyncio.to_thread(self._store.close)

    async def _stop_services(self, services: Services) -> None:
        await services.controller.stop()
        await services.history.stop()
        await services.store_guard.stop()
        await services.registration.stop()
        await services.fetchers.stop()
        await services.replicas.close()
        await services.state_changes.close()
        await services.replacements.stop()
        await services.groups.partitions.loaded()  # nothing reads logs any more
        await services.transactions.partitions.loaded()
        await services.topics.settled()
        changes = services.state_changes
        await asyncio.to_thread(changes.write_high_watermarks, changes.high_watermarks())
        await services.peers.close()

    @property
    def waiting_requests(self) -> int:
        """Number of fetches and produces that wait for records or replicas."""
        of_sessions = self._services.session_waiting.waiting if self._services else 0
        return self._waiting.waiting + of_sessions

    def figures(self) -> Mapping[str, int]:
        """Return the figures of `Services.figures`; none before the broker's start."""
        return self._services.figures() if self._services else {}

    async def group_figures(self) -> GroupFigures:
        """Return the figures of the consumer groups that this broker coordinates; none before its start."""
        return await self._services.consumer_lags.read() if self._services else NO_GROUPS

    def pushed_metrics(self) -> Sequence[Pushed]:
        """Return the metrics that clients have pushed to this broker. For any thread."""
        return self._services.client_telemetry.pushed(self.clock.monotonic_ms()) if self._services else ()

    async def topics_if_controller(self) -> Sequence[Topic]:
        """Return the topics of the cluster if this broker is the controller, else none."""
        return tuple(self.metadata) if self._services and self._services.controller.is_active else ()

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that the broker runs on; None before its start."""
        return self._loop

    def cluster_figures(self) -> Mapping[str, int]:
        """Return figures of the whole cluster by name if this broker is the controller, else none."""
        found = self._services.controller.figures if self._services else None
        return found._asdict() if found else {}

    def replicas(self) -> Iterator[Replica]:
        """Return an iterator over this broker's replicas; none before its start."""
        return iter(self._services.replicas) if self._services else iter(())

    def _start_schedule(self, services: Services) -> None:
        config, logs, clock, replicas = self.config, self._logs, self.clock, services.replicas

        def committed(name: TopicPartition) -> int:
            """Return the high watermark; 0 for a partition that the controller has not assigned here yet."""
            return replicas.find_high_watermark(name) or 0

        async def shrink_isr() -> None:
            await self._in_turns(replicas, replicas.shrink_isr)

        every = self._schedule.every
        for interval_ms, name, work in (
            (
                config.log_flush_scheduler_interval_ms,
                "flushing logs",
                lambda: logs.tasks.flush_due(clock.monotonic_ms()),
            ),
            (
                config.log_flush_offset_checkpoint_interval_ms,
                "writing recovery points",
                logs.tasks.checkpoint_recovery_points,
            ),
            (
                config.log_flush_start_offset_checkpoint_interval_ms,
                "writing log starts",
                logs.tasks.checkpoint_log_starts,
            ),
            (
                config.log_retention_check_interval_ms,
                "retention",
                lambda: logs.tasks.apply_retention(clock.time_ms(), committed, replicas.is_led),
            ),
            (
                config.producer_id_expiration_check_interval_ms,
                "forgetting producers",
                lambda: logs.tasks.expire_producers(clock.time_ms()),
            ),
            (ROOM_INTERVAL_MS, "looking for room on disks", logs.tasks.look_for_room),
            (DELETE_INTERVAL_MS, "deleting removed files", lambda: logs.tasks.delete_expired(clock.monotonic_ms())),
        ):
            every(interval_ms, name, partial(asyncio.to_thread, work))
        every(
            config.replica_high_watermark_checkpoint_interval_ms,
            "writing high watermarks",
            self._checkpoint_high_watermarks,
        )
        every(MOVES_INTERVAL_MS, "moving replicas between log directories", services.move_work.run)
        every(LEASE_INTERVAL_MS, "ending leases", services.replacements.expire)
        every(STRAYS_INTERVAL_MS, "deleting stray replicas", services.strays.delete_if_owed)
        every(config.offsets_retention_check_interval_ms, "expiring offsets", services.groups.expire)
        every(
            config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            "aborting transactions past their timeout",
            services.transactions.abort_timed_out,
        )
        every(
            config.transaction_remove_expired_transaction_cleanup_interval_ms,
            "expiring transactional ids",
            services.transactions.expire,
        )
        every(config.replica_lag_time_max_ms // 2, "looking for lagging replicas", shrink_isr)
        if config.metrics_listener:
            every(LOOP_DELAY_INTERVAL_MS, "measuring the event loop's delay", self._note_loop_delay)

    async def _in_turns(self, replicas: Iterable[Replica], do: Callable[[Sequence[Replica]], None]) -> None:
        """Do it for few replicas at a time: a broker may have ten thousand. Other tasks run in between."""
        some = of_many(list(replicas), REPLICAS_AT_ONCE)
        do(next(some, ()))
        for more in some:
            await self.slices.give_way()
            do(more)

    async def _checkpoint_high_watermarks(self) -> None:
        services = self.services
        found: HighWatermarks = {folder: {} for folder in self._logs.dirs}
        await self._in_turns(services.replicas, partial(services.state_changes.add_high_watermarks, found))
        await asyncio.to_thread(services.state_changes.write_high_watermarks, found)

    async def _note_loop_delay(self) -> None:
        self.loop_delay.fired(asyncio.get_running_loop().time())


def _is_led(replica: Replica | None) -> bool:
    return replica is not None and replica.partition.is_leader


def _log_progress(done: int, total: int, _: TopicPartition) -> None:
    if done % PROGRESS_EVERY == 0 or done == total:
        logger.info("opened %d of %d logs", done, total)

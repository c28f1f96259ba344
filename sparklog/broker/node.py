"""One broker: its start, its requests, its stop. `server/node.py` opens its listeners.

    join      open the cluster store; lock the log directories, open and recover the logs; find or choose the cluster
              id; restore and adopt topics (store_startup.py); make the parts (composition.py); register; become a
              candidate for controller; start the periodic tasks (background_tasks.py)
    ready     wait until the controller has sent the cluster's state and this broker leads every partition that it can.
              Client requests wait until then; requests of other brokers are served at once
    leave     hand leaderships over to other brokers (controlled shutdown)
    stop      end the long polls and the periodic tasks, resign as controller, stop the fetchers, write the high
              watermarks, close the logs with the marker of a clean stop, then end the store's session

A single broker takes the same steps: it is its own controller, and its requests to itself go straight to its handlers.
A killed broker that restarts replaces its registration and its controllership at once (cluster/brokers.py).

Work that waits for a disk or for the store runs in threads, never on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import random as randomness
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
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
    UnknownServerError,
)
from sparklog.base.fs import Fs, LocalFs
from sparklog.base.ids import TopicPartition
from sparklog.base.tracing import RequestTracing, Tracing
from sparklog.broker import background_tasks
from sparklog.broker.api import Api, Handlers
from sparklog.broker.apis import APIS, PEER_APIS
from sparklog.broker.client_requests import ClientRequests
from sparklog.broker.client_telemetry import PushedMetrics
from sparklog.broker.composition import Dependencies, compose
from sparklog.broker.consumer_lags import NO_GROUPS, GroupFigures
from sparklog.broker.controlled_shutdown import hand_over_leaderships, longest_hand_over_ms
from sparklog.broker.metrics import LoopDelay, Metrics
from sparklog.broker.services import Services
from sparklog.broker.slow_requests import SlowRequests
from sparklog.broker.store_guard import StoreGuard
from sparklog.broker.store_startup import StoreStartup
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.model import BrokerInfo, Topic
from sparklog.cluster.peers import Peers
from sparklog.cluster.store import Store
from sparklog.cluster.topics import TopicStore
from sparklog.log.directory.manager import LogManager
from sparklog.log.directory.open_files import OpenFileLimits
from sparklog.replica.manager import Replica
from sparklog.replica.messages import NO_LEADER
from sparklog.runtime.purgatory import Purgatory
from sparklog.runtime.remote_waits import waiting_for_others
from sparklog.runtime.schedule import PeriodicTasks
from sparklog.runtime.slices import Slices
from sparklog.security.principal_mapping import PrincipalMapper
from sparklog.security.quotas import ClientQuotas, QuotaWindows

NO_LISTENERS: Mapping[str, Address] = MappingProxyType({})
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
        """store: used instead of the configured one. peers: None if there are no other brokers.

        on_lost_store: called on the event loop once the cluster store has lost topics; must stop the broker
        """
        self.config = config
        self.principals = PrincipalMapper(config.ssl_principal_mapping_rules)
        """Maps names in clients' certificates to principals."""
        self.dynamic = DynamicConfig(config)
        """The present configuration; `config` is the one at the start."""
        self.metadata = MetadataCache(self.dynamic)
        """The cluster's state, as the controller has sent it."""
        self.metrics = Metrics(api.name for api in (*APIS, *PEER_APIS.values()))
        self.client_quotas = ClientQuotas(
            QuotaWindows(
                burst_s=config.quota_window_size_seconds,
                mutations_s=config.controller_quota_window_num * config.controller_quota_window_size_seconds,
            )
        )
        """The quotas of clients; the listeners apply them."""
        self.loop_delay = LoopDelay(background_tasks.LOOP_DELAY_INTERVAL_MS / 1000)
        """Measured if metrics are served."""
        self.is_stopping = False
        self.slices = Slices()
        self.slow_requests = SlowRequests(config.request_log_slow_ms)
        self.tracing: RequestTracing | None = None
        """Makes spans of requests; None: without tracing."""
        self._fs = fs or LocalFs()
        self.clock = clock or SystemClock()
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
            on_log_failure=self._log_failed,
            jitter=self._random.randrange,
            new_id=self._new_id,
            open_files=OpenFileLimits.of_process(),
        )
        self.dynamic.subscribe(self._logs.configure)
        self.dynamic.subscribe(lambda config: self.slow_requests.set_slow_ms(config.request_log_slow_ms))
        self._startup = StoreStartup(config, self.dynamic, self._logs, self.clock, self._new_id, store)
        self._on_lost_store = on_lost_store
        self._has_left = False
        self._is_ready = asyncio.Event()
        self.clients = ClientRequests(
            self.serve, self.metrics, self._is_ready, has_authorizer=bool(config.authorizer_class_name)
        )
        """Serves the requests of clients, after a check of their rights."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._services: Services | None = None

    # Parts

    @property
    def services(self) -> Services:
        """The broker's parts. Raises RuntimeError before `join` has made them."""
        if self._services is None:
            raise RuntimeError(f"broker {self.config.broker_id} has not joined its cluster yet")
        return self._services

    @property
    def handlers(self) -> Handlers:
        """The handlers, for listeners' operations; requests go through `serve`, which counts them."""
        return self.services.handlers

    @property
    def has_services(self) -> bool:
        """Whether `join` has made the broker's parts."""
        return self._services is not None

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The broker's event loop; None before its start."""
        return self._loop

    # Start

    async def start(self, grpc_address: str, listeners: Mapping[str, Address] = NO_LISTENERS) -> None:
        """Run `join`, then `ready`, for a broker that other brokers can already reach."""
        await self.join(grpc_address, listeners)
        await self.ready()

    async def join(self, grpc_address: str, listeners: Mapping[str, Address] = NO_LISTENERS) -> None:
        """Join the cluster. `grpc_address` and `listeners` (Kafka's, by name): the addresses for clients.

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
        startup = self._startup
        await asyncio.to_thread(startup.open, self._fs)
        await startup.confirm_missing()
        await asyncio.to_thread(startup.restore)
        self._services = services = compose(self._dependencies(info, startup))
        self.clients.set_accesses(services.accesses)
        if services.authorizer.is_enabled:  # requests of other brokers come before the controller has sent the ACLs
            services.authorizer.set_acls(await asyncio.to_thread(services.acl_store.load))
        await services.registration.start()
        services.store_guard.start()
        services.history.start()
        await services.controller.start()
        background_tasks.start(self._schedule, services, self.loop_delay)

    def _dependencies(self, info: BrokerInfo, startup: StoreStartup) -> Dependencies:
        store = startup.store
        guard = StoreGuard(store, TopicStore(store, self.config.topic_defaults), startup.id, self._lost_store)
        return Dependencies(
            config=self.config,
            dynamic=self.dynamic,
            info=info,
            cluster_id=startup.cluster_id,
            fs=self._fs,
            clock=self.clock,
            random=self._random,
            new_id=self._new_id,
            store=store,
            store_guard=guard,
            logs=self._logs,
            metadata=self.metadata,
            metrics=self.metrics,
            client_quotas=self.client_quotas,
            slices=self.slices,
            waiting=self._waiting,
            peers=self._peers,
            serve=self.serve,
        )

    async def ready(self) -> None:
        """Wait until client requests can be served, for at most `READY_TIMEOUT_MS`, then serve them in any case."""
        try:
            if not await self.metadata.wait_until(self._leads_what_it_can, READY_TIMEOUT_MS):
                logger.warning("broker %d serves before a controller has told it to lead", self.config.broker_id)
            await asyncio.to_thread(self._startup.note_change)
        finally:
            self._is_ready.set()

    def _leads_what_it_can(self) -> bool:
        """Return whether the controller knows this registration and has elected leaders where it can.

        Every partition whose ISR has this broker must be led, here or elsewhere, or be in a failed log directory.
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
        """Return whether the controller has sent the cluster's state, with this broker's present registration."""
        info = self.metadata.brokers.get(self.config.broker_id)
        return self.metadata.is_complete and info is not None and info.epoch >= self.services.registration.epoch

    def _open_tracing(self) -> RequestTracing:
        """Prepare the spans of requests. Raises ConfigError. Blocks."""
        resource = {"service.instance.id": str(self.config.broker_id), "service.version": __version__}
        tracing = Tracing(self.config.tracing_otlp_endpoint, "sparklog", resource)
        return RequestTracing(tracing, self.config.tracing_sample_every)

    def _new_id(self) -> UUID:
        """Return a random UUID, version 4: in a simulation the seed decides it."""
        return UUID(int=self._random.getrandbits(128), version=4)

    # Failures

    def _dir_failed(self, path: str, error: OSError) -> None:
        """Take the directory's partitions offline and answer the requests that wait for them. Called on any thread."""
        if self._loop and self._services:
            self._loop.call_soon_threadsafe(self._set_dir_offline, path, str(error))

    def _set_dir_offline(self, path: str, why: str) -> None:
        self.services.replicas.set_dir_offline(path, why)
        self.services.registration.report_failed_disk()

    def _log_failed(self, name: TopicPartition, why: str) -> None:
        """Take the partition offline, whose log alone has failed. Called on any thread."""
        if self._loop and self._services:
            self._loop.call_soon_threadsafe(self._set_log_offline, name, why)

    def _set_log_offline(self, name: TopicPartition, why: str) -> None:
        self.services.replicas.set_offline(name, why)
        self.services.registration.report_failed_disk()

    def _lost_store(self) -> None:
        self._has_left = True  # no controller could elect other leaders
        self._on_lost_store()

    @property
    def takes_records(self) -> bool:
        """Whether the broker accepts records: it is not stopping, and some log directory is not full."""
        return not self.is_stopping and len(self._logs.dirs) > len(self._logs.full_dirs)

    @property
    def not_ready(self) -> str:
        """The reason why clients should use other brokers, though this one runs; empty if there is none."""
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

    # Requests

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
            assert services  # other brokers reach this one only after `join`
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

    @property
    def waiting_requests(self) -> int:
        """Number of fetches and produces that wait for records or replicas."""
        of_sessions = self._services.session_waiting.waiting if self._services else 0
        return self._waiting.waiting + of_sessions

    # Stop

    async def leave(self) -> None:
        """Hand this broker's leaderships over, if there are other brokers. Runs once; does nothing before the start."""
        config, services = self.config, self._services
        if self._has_left or self.is_stopping or services is None:
            return
        self._has_left = True
        if config.controlled_shutdown_enable and len(services.metadata.brokers) > 1:
            pauses_ms = longest_hand_over_ms(config)
            with suppress(TimeoutError):  # the broker must be able to stop
                async with asyncio.timeout((pauses_ms + config.controlled_shutdown_timeout_ms) / 1000):
                    await hand_over_leaderships(
                        services.registration.epoch,
                        clock=services.clock,
                        config=config,
                        metadata=services.metadata,
                        peers=services.peers,
                    )
        await services.history.flush()

    def prepare_stop(self) -> None:
        """Answer the waiting requests. Later requests do not wait."""
        self.is_stopping = True
        self._is_ready.set()
        if self._services:
            self._services.groups.stop()
            self._services.transactions.stop()
            self.metadata.release()
            self._services.follower_fetches.release_all()
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
        if self._startup.has_logs:
            await asyncio.to_thread(self._logs.close)
        await asyncio.to_thread(self._startup.close)

    async def _stop_services(self, services: Services) -> None:
        await services.controller.stop()
        await services.history.stop()
        await services.store_guard.stop()
        await services.registration.stop()
        await services.fetchers.stop()
        await services.replicas.close()
        await services.state_changes.close()
        await services.replacements.stop()
        await services.groups.partitions.loaded()  # no task reads logs any more
        await services.transactions.partitions.loaded()
        await services.topics.settled()
        changes = services.state_changes
        await asyncio.to_thread(changes.write_high_watermarks, changes.high_watermarks())
        await services.peers.close()

    # Figures, for metrics

    def figures(self) -> Mapping[str, int]:
        """Return `Services.figures`; none before the broker's start."""
        return self._services.figures() if self._services else {}

    async def group_figures(self) -> GroupFigures:
        """Return the figures of the consumer groups that this broker coordinates; none before its start."""
        return await self._services.consumer_lags.read() if self._services else NO_GROUPS

    def pushed_metrics(self) -> Sequence[PushedMetrics]:
        """Return the metrics that clients have pushed to this broker. For any thread."""
        return self._services.client_telemetry.pushed(self.clock.monotonic_ms()) if self._services else ()

    async def topics_if_controller(self) -> Sequence[Topic]:
        """Return the topics of the cluster if this broker is the controller, else none."""
        return tuple(self.metadata) if self._services and self._services.controller.is_active else ()

    def cluster_figures(self) -> Mapping[str, int]:
        """Return figures of the whole cluster by name if this broker is the controller, else none."""
        found = self._services.controller.figures if self._services else None
        return found._asdict() if found else {}

    def replicas(self) -> Iterator[Replica]:
        """Return an iterator over this broker's replicas; none before its start."""
        return iter(self._services.replicas) if self._services else iter(())


def _is_led(replica: Replica | None) -> bool:
    return replica is not None and replica.partition.is_leader

"""Probes of a broker: /livez and /readyz, from its start to its end."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from sparklog.testing import start_broker
from support.patience import PATIENCE_S, wait_until
from support.processes.broker import BrokerProcess
from support.processes.probes import NO_ANSWER, Answer, probe

LIVE, READY = (200, {"status": "ok"}), (200, {"status": "ready"})
PATIENT = "cluster.store.session.timeout.ms=600000"
"""The broker waits for its store for minutes."""
MORE_THAN_THERE_IS = 1 << 62

pytestmark = pytest.mark.slow


@contextmanager
def locked(store: Path) -> Iterator[None]:
    """Lock the cluster store for writes."""
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def not_ready(why: str) -> Answer:
    return 503, {"status": "not ready", "reason": why}


def test_a_process_is_live_all_the_time_and_ready_from_the_end_of_its_start_to_its_stop(tmp_path: Path) -> None:
    store = tmp_path / "cluster.sqlite"
    broker = BrokerProcess(tmp_path, f"cluster.store={store}", PATIENT, serves_metrics=True)

    def readiness() -> Answer:
        return probe(broker.metrics, "/readyz")

    try:
        with locked(store):
            broker.launch()
            wait_until(lambda: readiness() == not_ready("starting"), "it says that it starts", tell=readiness)
            assert probe(broker.metrics, "/livez") == LIVE
            assert probe(broker.metrics, "/nothing")[0] == 404
        broker.await_ready()
        wait_until(lambda: readiness() == READY, "it says that it is ready", tell=readiness)
        assert probe(broker.metrics, "/livez") == LIVE
        with locked(store):
            broker.begin_to_stop()
            wait_until(lambda: readiness() == not_ready("stopping"), "it says that it stops", tell=readiness)
            assert probe(broker.metrics, "/livez") == LIVE
        broker.stop()
        assert probe(broker.metrics, "/livez")[0] == NO_ANSWER
    finally:
        if broker.is_running:
            broker.kill()


def test_a_process_whose_disk_is_full_is_live_and_not_ready(tmp_path: Path) -> None:
    setting = f"log.dir.min.free.bytes={MORE_THAN_THERE_IS}"
    with BrokerProcess(tmp_path, setting, serves_metrics=True) as broker:
        status, answer = not_ready("each log directory is full or has failed")
        full = (status, answer | {"full_log_dirs": [str(tmp_path / "data")]})
        wait_until(lambda: probe(broker.metrics, "/readyz") == full, "it says that its disk is full")
        assert probe(broker.metrics, "/livez") == LIVE


def test_a_broker_whose_event_loop_does_not_turn_is_not_live() -> None:
    with start_broker(metrics_listener="127.0.0.1:0") as broker:
        address = broker.node.metrics_address
        has_stopped, may_turn = threading.Event(), threading.Event()

        async def stop_the_loop() -> None:
            has_stopped.set()
            may_turn.wait(PATIENCE_S)

        stopped = threading.Thread(target=lambda: broker.run(stop_the_loop()))
        stopped.start()
        has_stopped.wait(PATIENCE_S)
        try:
            assert probe(address, "/livez") == (503, {"status": "stuck"})
        finally:
            may_turn.set()
            stopped.join()
        assert probe(address, "/livez") == LIVE

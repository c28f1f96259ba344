"""Unneeded work that a start of `sparklog up` avoids: imports, and waits for the disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.cluster.sqlite_tree import SqliteTree
from sparklog.testing import start_broker

pytestmark = pytest.mark.slow

MOST_WRITES = 12
"""Of the cluster store, each of which waits for the disk: paths, two ids, the registration, the election."""


def loaded_by(code: str, *names: str) -> set[str]:
    found = f"{code}; import sys; print(*set({names!r}).intersection(sys.modules))"
    done = subprocess.run([sys.executable, "-c", found], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_parent_of_several_brokers_imports_neither_a_broker_nor_a_client() -> None:
    code = "import sparklog.cli.up, sparklog.cli.up_several"
    heavy = ("grpc", "sparklog.broker", "sparklog.server.node", "sparklog.client.cluster", "numpy", "kio")
    assert loaded_by(code, *heavy) == set()


def test_a_broker_imports_no_scram_and_no_kernels_before_somebody_needs_them() -> None:
    code = "import sparklog.cli.up_one, sparklog.server.kafka.server"
    assert loaded_by(code, "scramp", "asn1crypto", "numpy", "numba", "kazoo", "grpc") == {"grpc"}


def test_a_first_start_writes_to_the_cluster_store_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[SqliteTree] = []
    sync = SqliteTree.sync
    monkeypatch.setattr(SqliteTree, "sync", lambda tree: (writes.append(tree), sync(tree)))
    with start_broker(tmp_path, kafka=True):
        pass
    assert 0 < len(writes) <= MOST_WRITES

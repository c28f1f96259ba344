"""Compiled kernels are cached for later processes if possible, and work without a cache too."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sparklog
from sparklog.records import kernels
from support.patience import PATIENCE_S

SOURCE = Path(sparklog.__file__).parent

# Encodes and decodes, and prints how many kernels were compiled and how many came from a cache.
PROGRAM = """
import json
import sparklog
from sparklog.records import arrow, decode_kernels, encode_kernels
from sparklog.records.records import Record, read_records, write_records
records = [Record(offset=0, timestamp_ms=7, key=b"k", value=None, headers=(("h", b"v"),))]
batch = arrow.encode(arrow.decode(write_records(records)), default_timestamp_ms=0)
assert read_records(batch) == records
compiled = [decode_kernels.scan_batches, decode_kernels.parse_batches, decode_kernels.copy_column,
            decode_kernels.copy_header_columns, encode_kernels.measure_batches, encode_kernels.write_batches]
hits = sum(sum(kernel.stats.cache_hits.values()) for kernel in compiled)
signatures = sum(len(kernel.signatures) for kernel in compiled)
print(json.dumps({"package": sparklog.__file__, "hits": hits, "signatures": signatures}))
"""
KERNELS = 6

# The same of one kernel, which compiles soonest.
SMALL_PROGRAM = """
import json
import numpy as np
import sparklog
from sparklog.records.header_kernels import COLUMNS, CUT_OFF, scan_headers
from sparklog.records.records import Record, write_records
data = np.frombuffer(bytes(write_records([Record(offset=0, timestamp_ms=7)])), np.uint8)
table = np.empty((2, COLUMNS), np.int64)
assert scan_headers(data, 0, table) == (1, len(data), CUT_OFF)
hits = sum(scan_headers.stats.cache_hits.values())
print(json.dumps({"package": sparklog.__file__, "hits": hits, "signatures": len(scan_headers.signatures)}))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package in which even root cannot make a folder for caches."""
    copy = tmp_path / "site" / "sparklog"
    for part in ("base", "records"):
        shutil.copytree(SOURCE / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / part / "__pycache__").write_text("a file where the folder would be")
    shutil.copy(SOURCE / "__init__.py", copy)
    return copy


def start(package: Path, **environment: str | Path) -> subprocess.Popen[str]:
    """Run SMALL_PROGRAM with the package, its user without a cache unless `environment` says otherwise."""
    variables = {
        **os.environ,
        "PYTHONPATH": str(package.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "XDG_CACHE_HOME": os.devnull,
        **{name: str(value) for name, value in environment.items()},
    }
    return subprocess.Popen(
        [sys.executable, "-c", SMALL_PROGRAM],
        cwd=package.parent,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], package: Path) -> tuple[dict[str, float], str]:
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    result = json.loads(output)
    assert Path(result["package"]).is_relative_to(package)
    assert result["signatures"] == 1
    return result, errors


def test_headers_can_be_read_without_loading_numba_or_arrow() -> None:
    program = (
        "import sys, sparklog.records.batch; print([m for m in ('numba', 'pyarrow', 'numpy') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.slow
def test_a_read_only_package_keeps_kernels_in_a_private_folder(package: Path, tmp_path: Path) -> None:
    first, _ = finish(start(package, TMPDIR=tmp_path), package)
    assert first["hits"] == 0
    (folder,) = tmp_path.glob("sparklog-kernels-*")
    assert folder.stat().st_mode & 0o077 == 0
    assert len(list(folder.rglob("*.nbc"))) == 1
    second, _ = finish(start(package, TMPDIR=tmp_path), package)
    assert second["hits"] == 1


@pytest.mark.slow
def test_kernels_that_cannot_be_kept_anywhere_work_all_the_same(package: Path, tmp_path: Path) -> None:
    (tmp_path / f"sparklog-kernels-{os.getuid()}").write_text("a file where the folder would be")
    result, errors = finish(start(package, TMPDIR=tmp_path), package)
    assert result["hits"] == 0
    assert "set NUMBA_CACHE_DIR" in errors
    assert not list(tmp_path.rglob("*.nbc"))


def test_a_folder_that_others_can_write_to_is_not_private(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kernels.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = tmp_path / f"sparklog-kernels-{os.getuid()}"
    assert kernels._private_folder() == str(folder)
    assert kernels._private_folder() == str(folder)
    folder.chmod(0o777)
    assert kernels._private_folder() is None
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    assert kernels._private_folder() is None
    folder.unlink()
    folder.write_text("")
    assert kernels._private_folder() is None
    monkeypatch.setattr(kernels.tempfile, "gettempdir", lambda: os.devnull)
    assert kernels._private_folder() is None


@pytest.mark.slow
def test_processes_that_compile_at_once_into_numbas_own_folder_do_not_disturb_each_other(
    package: Path, tmp_path: Path
) -> None:
    chosen = tmp_path / "chosen"
    processes = [start(package, TMPDIR=tmp_path, NUMBA_CACHE_DIR=chosen) for _ in range(2)]
    for process in processes:
        finish(process, package)
    assert len(list(chosen.rglob("*.nbc"))) == 1
    assert not list(tmp_path.glob("sparklog-kernels-*"))
    result, _ = finish(start(package, NUMBA_CACHE_DIR=chosen), package)
    assert result["hits"] == 1


@pytest.mark.slow
def test_a_process_with_a_warm_cache_compiles_nothing() -> None:
    command = [sys.executable, "-c", PROGRAM]
    for _ in range(2):  # the first may have to compile
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    result = json.loads(done.stdout)
    assert result["hits"] == KERNELS
    assert result["signatures"] == KERNELS  # one each: no second compilation for another kind of array


def test_other_users_of_numba_keep_their_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chosen = kernels.numba.config.CACHE_DIR
    calls = []

    def njit(**options: object) -> object:
        calls.append((options.get("cache"), kernels.numba.config.CACHE_DIR))
        if len(calls) == 1:
            raise RuntimeError("no locator available")
        return lambda function: function

    monkeypatch.setattr(kernels, "njit", njit)
    monkeypatch.setattr(kernels.tempfile, "gettempdir", lambda: str(tmp_path))
    assert kernels.kernel(len) is len
    assert calls == [(True, chosen), (True, str(tmp_path / f"sparklog-kernels-{os.getuid()}"))]
    assert chosen == kernels.numba.config.CACHE_DIR

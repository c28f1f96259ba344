"""What is public is listed where people and editors look for it, and is loaded when it is used."""

from __future__ import annotations

import importlib
import rlcompleter
import subprocess
import sys

import pytest

from support import ROOT

PACKAGES = [
    "sparklog",
    "sparklog.client",
    "sparklog.client.aio",
    "sparklog.jobs",
    "sparklog.spark",
    "sparklog.testing",
]
HEAVY = ("pyarrow", "numba", "numpy", "grpc", "pyspark")


def loaded_by(code: str) -> set[str]:
    """Which of the heavy packages a process has loaded after this code."""
    shown = f"{code}; import sys; print(*(name for name in {HEAVY} if name in sys.modules))"
    return set(subprocess.check_output([sys.executable, "-c", shown], text=True, cwd=ROOT).split())


@pytest.mark.parametrize("package", PACKAGES)
def test_each_public_name_is_listed_and_is_there(package):
    module = importlib.import_module(package)
    assert dir(module) == sorted(module.__all__)
    assert all(getattr(module, name) is not None for name in module.__all__)
    with pytest.raises(AttributeError, match=f"{package}.*Produser"):
        _ = module.Produser


def test_names_are_completed_by_the_interpreter():
    client = importlib.import_module("sparklog.client")
    completed = rlcompleter.Completer({"client": client}).attr_matches("client.Table")
    assert [name.rstrip("()") for name in completed] == ["client.TableDelivery", "client.TableMetadata"]


def test_listing_names_loads_nothing():
    imports = "; ".join(f"import {package}; dir({package})" for package in PACKAGES)
    assert loaded_by(imports) == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["client.Admin", "client.Maintenance", "client.aio.AsyncAdmin"])
def test_who_manages_topics_needs_neither_arrow_nor_compiled_kernels(name):
    assert loaded_by(f"import sparklog; sparklog.{name}") == {"grpc"}

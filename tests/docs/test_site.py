"""`make docs` builds a site without external resources."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.docs.markdown import ROOT

pytestmark = pytest.mark.slow

LOADED = re.compile(
    r"""<(?:script|img|iframe)[^>]*\ssrc=["']?(?:https?:)?//|<link[^>]*rel=["']?(?:stylesheet|preconnect)[^>]*//"""
)


def test_the_site_builds_without_warnings_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(ROOT / "conf" / "mkdocs.yml")]
    done = subprocess.run([*command, "--site-dir", str(tmp_path)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 30
    assert [str(page) for page in pages if LOADED.search(page.read_text())] == []

"""The first import of Arrow and the kernels by a broker."""

from __future__ import annotations

import subprocess
import sys

import pytest

TWO_AT_ONCE = """
import asyncio, sys
from sparklog.server.grpc.load_payloads import load_payloads

async def main():
    first = asyncio.create_task(load_payloads())
    while "sparklog.server.grpc.payloads" not in sys.modules:
        await asyncio.sleep(0)
    assert (await load_payloads()).encode_payload is (await first).encode_payload

asyncio.run(main())
"""


@pytest.mark.slow
def test_who_comes_while_the_module_is_imported_gets_all_of_it() -> None:
    subprocess.run([sys.executable, "-c", TWO_AT_ONCE], check=True)

"""After an install, plain records and Arrow are written and read while the kernels are compiled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.patience import PATIENCE_S

FIRST_REQUESTS = """
import json, sys, threading
from pathlib import Path
import grpc, numba.core.event as events
import pyarrow as pa
from sparklog.testing import start_broker
from sparklog.v1 import log_pb2, log_pb2_grpc, records_pb2

compiled = []
class Listener(events.Listener):
    def on_start(self, event):
        compiled.append(threading.current_thread().name)
    def on_end(self, event):
        pass
events.register("numba:compile", Listener())

sink = pa.BufferOutputStream()
with pa.ipc.new_stream(sink, pa.schema([("value", pa.binary())])) as writer:
    writer.write_batch(pa.record_batch({"value": pa.array([b"arrow"], pa.binary())}))

with start_broker(Path(sys.argv[1])) as broker, grpc.insecure_channel(broker.bootstrap) as channel:
    log = log_pb2_grpc.LogStub(channel)
    payloads = (
        {"records": records_pb2.RecordList(records=[records_pb2.Record(value=b"plain")])},
        {"arrow": sink.getvalue().to_pybytes()},
    )
    for payload in payloads:
        part = log_pb2.PartitionProduce(topic="t", partition=0, **payload)
        answer = log.Produce(log_pb2.ProduceRequest(acks="ALL", partitions=[part]), wait_for_ready=True)
        assert not answer.partitions[0].HasField("error"), answer
    read = {}
    for form in ("RECORDS", "ARROW"):
        part = log_pb2.PartitionFetch(topic="t", partition=0, fetch_offset=0)
        answer = log.Fetch(log_pb2.FetchRequest(format=form, partitions=[part], max_wait_ms=10000))
        read[form] = answer.partitions[0]
    values = [record.value.decode() for record in read["RECORDS"].records.records]
    rows = pa.ipc.open_stream(read["ARROW"].arrow).read_all()["value"].to_pylist()
    compiling = [thread for thread in threading.enumerate() if thread.name == "sparklog kernels"]
    for thread in compiling:
        thread.join()
print(json.dumps({"values": values, "rows": [row.decode() for row in rows], "threads": sorted({*compiled})}))
"""


@pytest.mark.slow
def test_no_request_compiles_the_kernels(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FIRST_REQUESTS, str(tmp_path / "data")],
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "values": ["plain", "arrow"],
        "rows": ["plain", "arrow"],
        "threads": ["sparklog kernels"],
    }

"""sparklog/v1 is what the protobuf compiler makes of proto/ today."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from grpc_tools import protoc

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROTO = ROOT / "proto" / "sparklog" / "v1"


def test_committed_modules_equal_freshly_generated_ones(tmp_path: Path) -> None:
    sources = [str(path) for path in sorted(PROTO.glob("*.proto"))]
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]

    assert protoc.main(["protoc", f"-I{ROOT / 'proto'}", *outputs, *sources]) == 0

    generated = {path.name: path.read_text() for path in (tmp_path / "sparklog" / "v1").iterdir()}
    committed = {name: (ROOT / "sparklog" / "v1" / name).read_text() for name in generated}
    assert generated == committed, "run `make proto`"
    assert len(generated) == 3 * len(sources)


@pytest.mark.parametrize("name", sorted(path.stem for path in PROTO.glob("*.proto")))
def test_go_and_java_have_one_package_for_all_files(name: str) -> None:
    options = importlib.import_module(f"sparklog.v1.{name}_pb2").DESCRIPTOR.GetOptions()

    assert options.go_package == "sparklog/v1;sparklogv1"
    assert (options.java_package, options.java_multiple_files) == ("sparklog.v1", True)

"""sparklog/v1 is what the protobuf compiler makes of proto/ today."""

from __future__ import annotations

from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parents[2]


def test_committed_modules_equal_freshly_generated_ones(tmp_path: Path) -> None:
    sources = [str(path) for path in sorted((ROOT / "proto" / "sparklog" / "v1").glob("*.proto"))]
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]

    assert protoc.main(["protoc", f"-I{ROOT / 'proto'}", *outputs, *sources]) == 0

    generated = {path.name: path.read_text() for path in (tmp_path / "sparklog" / "v1").iterdir()}
    committed = {name: (ROOT / "sparklog" / "v1" / name).read_text() for name in generated}
    assert generated == committed, "run `make proto`"
    assert len(generated) == 3 * len(sources)

"""`sparklog dump`, compared with the output of Apache Kafka's DumpLogSegments for the same files."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sparklog.cli.dump import command
from sparklog.records.batch import Codec
from support import GOLDEN

DUMPS = sorted(GOLDEN.glob("*/*.dump"))
EXPECTED = sorted(GOLDEN.glob("*/expected.jsonl"))
LOG = "00000000000000000000.log"
DECODERS = {"__consumer_offsets-0": ["--offsets-decoder"], "__transaction_state-0": ["--transaction-log-decoder"]}


def dump(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.mark.parametrize("dumped", DUMPS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_golden_file_is_dumped_as_kafka_dumps_it(dumped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN)
    path = dumped.with_suffix("").relative_to(GOLDEN)
    decoder = DECODERS.get(path.parent.name, [])

    done = dump(path, "--print-data-log", *decoder)

    assert done.stdout == dumped.read_text()


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda path: path.parent.name)
def test_json_has_every_record_and_no_marker(expected: Path) -> None:
    done = dump("--json", *sorted(expected.parent.glob("*.log")))

    assert done.stdout == expected.read_text()
    assert done.exit_code == 0


def test_a_flipped_bit_is_reported_and_the_rest_is_dumped(tmp_path: Path) -> None:
    log = tmp_path / LOG
    data = bytearray((GOLDEN / "codec-none-0" / LOG).read_bytes())
    data[100] ^= 1
    log.write_bytes(data)

    done = dump(log, "--deep-iteration")

    assert done.stdout.count("isvalid: false") == 1
    assert done.stdout.count("| offset:") == 160
    assert "CRC" in done.stderr
    assert done.exit_code == 1


def test_a_torn_end_is_reported(tmp_path: Path) -> None:
    log = tmp_path / LOG
    log.write_bytes((GOLDEN / "codec-none-0" / LOG).read_bytes()[:-5])

    done = dump(log)

    assert re.search(r"Found \d+ invalid bytes at the end of 0+\.log", done.stdout)


@pytest.mark.parametrize(("suffix", "entry", "complaint"), [("index", 8, "Mismatches in"), ("timeindex", 12, "Found")])
def test_a_wrong_index_entry_is_reported(tmp_path: Path, suffix: str, entry: int, complaint: str) -> None:
    for path in (GOLDEN / "segments-0").glob("00000000000000000000.*"):
        shutil.copy(path, tmp_path)
    index = tmp_path / f"00000000000000000000.{suffix}"
    data = bytearray(index.read_bytes())
    data[entry + 3] ^= 1
    index.write_bytes(data)

    done = dump(index, "--verify-index-only")

    assert complaint in done.stderr
    assert done.exit_code == 1


def test_sanity_check_passes_where_kafka_wrote_and_fails_on_a_torn_entry(tmp_path: Path) -> None:
    indexes = sorted((GOLDEN / "segments-0").glob("*index"))
    torn = tmp_path / indexes[0].name
    torn.write_bytes(indexes[0].read_bytes()[:-3])

    assert dump(*indexes, "--index-sanity-check").stdout.count("passed sanity check.") == len(indexes)
    assert dump(torn, "--index-sanity-check").exit_code == 1


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_messages_of_old_formats_have_their_offsets_and_sums(tmp_path: Path, magic: int, codec: Codec) -> None:
    log = tmp_path / LOG
    log.write_bytes(message_set(magic, codec))

    done = dump(log, "--print-data-log")

    codec_name = codec.name.lower()
    assert f"magic: {magic} compresscodec: {codec_name} " in done.stdout
    assert done.stdout.count("isValid: true crc: ") == 3
    kind = "NoTimestampType: -1" if magic == 0 else r"CreateTime: \d+"
    assert re.search(
        rf"\| offset: 2 {kind} keySize: 2 valueSize: 7 isValid: true crc: \d+ key: k2 payload: value-2", done.stdout
    )
    assert done.exit_code == 0


def message_set(magic: int, codec: Codec) -> bytes:
    """Three messages in the format of kafka-python for old brokers."""
    from kafka.record.legacy_records import LegacyRecordBatchBuilder

    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=int(codec), batch_size=10_000)
    for number in range(3):
        key, value = b"k%d" % number, b"value-%d" % number
        builder.append(number, timestamp=1_700_000_000_000 + number if magic else None, key=key, value=value)
    return bytes(builder.build())


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "leader-epoch-checkpoint"
    other.write_text("0\n")

    assert "not a .log" in str(dump(other).exception)
    assert ".log files" in str(dump("--json", other).exception)

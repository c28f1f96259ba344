from pathlib import Path

import pytest

from sparklog.base.config import BROKER_KEYS, BrokerConfig
from sparklog.base.config_doc import broker_toml
from sparklog.base.config_file import load_broker_config
from sparklog.base.errors import ConfigError
from sparklog.base.topic_config import BROKER_DEFAULTS_OF_TOPICS

CONF = Path(__file__).parents[2] / "conf" / "broker.toml"


@pytest.fixture
def load(tmp_path: Path):
    def load(content: str, environment=None, arguments=()) -> BrokerConfig:
        path = tmp_path / "broker.toml"
        path.write_text(content)
        return load_broker_config(str(path), environment or {}, arguments)

    return load


def test_nothing_gives_the_defaults() -> None:
    assert load_broker_config(None, {"PATH": "/bin"}, []) == BrokerConfig()


def test_dotted_keys_and_tables_mean_the_same(load) -> None:
    dotted = load('log.segment.bytes = 2_000_000\nlog.dirs = ["/a", "/b"]\nauto.create.topics.enable = false\n')
    tables = load('[log]\nsegment.bytes = 2000000\ndirs = "/a,/b"\n[auto.create]\ntopics.enable = false\n')
    assert dotted == tables
    assert (dotted.topic_defaults.segment_bytes, dotted.log_dirs) == (2_000_000, ("/a", "/b"))
    assert not dotted.auto_create_topics_enable


def test_arguments_beat_the_environment_which_beats_the_file(load) -> None:
    content = "num.partitions = 2\nbroker.id = 2\nlog.retention.ms = 2\n"
    environment = {"SPARKLOG_CONFIG_NUM_PARTITIONS": "3", "SPARKLOG_CONFIG_BROKER_ID": "3"}
    config = load(content, environment, ["num.partitions=4"])
    assert (config.num_partitions, config.broker_id, config.topic_defaults.retention_ms) == (4, 3, 2)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("\n\nlog.segment.byte = 1\n", "broker.toml:3: unknown key 'log.segment.byte'; did you mean log.segment.bytes"),
        ("[log]\n# a\nsegment.bytes = 7\n", "broker.toml:3: log.segment.bytes = '7': it must be a whole number from"),
        ("num.partitions = 1.5\n", "broker.toml:1: num.partitions = '1.5': it must be a whole number from 1"),
        ("delete.topic.enable = 'no'\n", "broker.toml:1: delete.topic.enable = 'no': it must be true or false"),
        ("broker.id = 1979-05-27\n", "broker.toml:1: broker.id: it must be a text, a number"),
        ("log.dirs = [1, 2]\n", "broker.toml:1: log.dirs: it must be a text, a number"),
        ("log.dirs = []\n", "broker.toml:1: log.dirs = '': it must be one or more texts"),
        ("broker.id = \n", "broker.toml: Invalid value (at line 1, column 13)"),
        ("retention.ms = 5\n", "broker.toml:1: unknown key 'retention.ms'; did you mean log.retention.ms?"),
    ],
)  # fmt: skip
def test_an_error_in_a_file_names_its_line(load, content: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(content)
    assert said in str(caught.value)


def test_an_error_elsewhere_names_its_place(load) -> None:
    with pytest.raises(ConfigError, match=r"^SPARKLOG_CONFIG_BROKER_IDS: unknown key 'broker\.ids'"):
        load("", {"SPARKLOG_CONFIG_BROKER_IDS": "1"})
    with pytest.raises(
        ConfigError, match=r"^--set: broker\.id = '-1': it must be a whole number from 0 to 2147483647$"
    ):
        load("", {}, ["broker.id=-1"])
    with pytest.raises(ConfigError, match=r"^--set broker\.id: it must be KEY=VALUE$"):
        load("", {}, ["broker.id"])


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^/nowhere/broker\.toml: No such file or directory$"):
        load_broker_config("/nowhere/broker.toml", {}, [])


def test_the_committed_file_is_the_generated_one() -> None:
    assert CONF.read_text() == broker_toml(), "run: python -m sparklog.base.config_doc > conf/broker.toml"


def test_the_committed_file_with_every_key_uncommented_is_the_default(load) -> None:
    names = {*BROKER_KEYS, *BROKER_DEFAULTS_OF_TOPICS}
    lines = [line.removeprefix("#") for line in CONF.read_text().splitlines()]
    chosen = [line for line in lines if line.partition(" = ")[0].strip('"') in names]
    assert len(chosen) == len(names)
    assert load("\n".join(chosen)) == BrokerConfig()

"""Several brokers on one machine, made of one configuration: what each of them is started with besides.

Brokers are numbered from 1. Each has a folder of its own in every log directory, and its ports: broker 1 has those that
are configured, each further one has ten more than the one before; port 0 stays 0. All have one cluster store.

`conf/three-brokers/` is written from here too: ``python -m sparklog.base.cluster_config conf/three-brokers``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from sparklog.base.config import BrokerConfig

PORTS_APART = 10
MOST_REPLICAS = 3
CLUSTER_STORE = "cluster.sqlite"


def cluster_defaults(brokers: int) -> Mapping[str, str]:
    """What a cluster of so many brokers goes by where nothing else is said: it loses nothing when one broker dies.

    Every record that is acknowledged (acks=all) is with two brokers, as soon as there are two that live to take it. And
    it keeps its history, which a broker alone has little use for.
    """
    replicas = str(min(brokers, MOST_REPLICAS))
    return {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "min.insync.replicas": "2" if brokers >= MOST_REPLICAS else "1",
        "cluster.history.enable": "true",
    }


def broker_settings(config: BrokerConfig, number: int) -> dict[str, str]:
    """What broker `number` has for itself, of a cluster whose brokers all have `config`."""
    further = PORTS_APART * (number - 1)
    settings = {
        "broker.id": str(number),
        "log.dirs": ",".join(f"{folder}/broker-{number}" for folder in config.log_dirs),
        "grpc.listener": _moved(config.grpc_listener, further),
        "listeners": ",".join(_moved(listener, further) for listener in config.listeners),
    }
    for key, address in (
        ("grpc.advertised.listener", config.grpc_advertised_listener),
        ("advertised.listeners", ",".join(_moved(listener, further) for listener in config.advertised_listeners)),
        ("metrics.listener", config.metrics_listener),
    ):
        if address:
            settings[key] = address if "://" in address else _moved(address, further)
    if not config.zookeeper_connect:
        settings["cluster.store"] = config.cluster_store or f"{config.log_dirs[0]}/{CLUSTER_STORE}"
    return settings


def _moved(listener: str, further: int) -> str:
    """HOST:PORT or NAME://HOST:PORT with a port that is so much higher."""
    host, _, port = listener.rpartition(":")
    if not port.isdigit() or int(port) == 0:
        return listener
    return f"{host}:{int(port) + further}"


_THREE = """\
# Broker {number} of three on one machine, with ZooKeeper. Start ZooKeeper, then each of the three with
#     sparklog up --config conf/three-brokers/broker-{number}.toml
# Brokers on machines of their own have the same ports, and tell clients under which name they are reached
# (grpc.advertised.listener, advertised.listeners). All other keys are as in conf/broker.toml.
"""


def broker_toml(number: int) -> str:
    """The configuration file of one of three brokers with ZooKeeper."""
    config = BrokerConfig(
        log_dirs=("./sparklog-data",), zookeeper_connect="127.0.0.1:2181", listeners=("PLAINTEXT://127.0.0.1:9092",)
    )
    settings = {
        **broker_settings(config, number),
        "zookeeper.connect": config.zookeeper_connect,
        **cluster_defaults(MOST_REPLICAS),
    }
    lines = [f"{key} = {_toml(value)}\n" for key, value in settings.items()]
    return _THREE.format(number=number) + "".join(lines)


def _toml(value: str) -> str:
    return value if value.isdigit() or value in ("true", "false") else f'"{value}"'


def main(arguments: Iterable[str]) -> None:
    """Write the files into the folder that is named."""
    [folder] = map(Path, arguments)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, MOST_REPLICAS + 1):
        (folder / f"broker-{number}.toml").write_text(broker_toml(number), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

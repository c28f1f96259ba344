"""Settings of several brokers on one machine, derived from one configuration.

Brokers are numbered from 1, or from broker.id if that is higher, so that several machines can form one cluster. Each
has its own folder in every log directory and its own ports: the first broker has the configured ports, each further
one adds 10 to those of the one before; port 0 stays 0. All share one cluster store.

This module also writes `conf/three-brokers/`: ``python -m sparklog.base.cluster_config conf/three-brokers``.
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
    """Return the default settings of a cluster with `brokers` brokers.

    With three or more brokers, every record acknowledged with acks=all is on two of them, so the death of one broker
    loses none. With two brokers, that holds while both are in sync. The cluster history is enabled.
    """
    replicas = str(min(brokers, MOST_REPLICAS))
    return {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "min.insync.replicas": "2" if brokers >= MOST_REPLICAS else "1",
        "cluster.history.enable": "true",
    }


def cores_defaults(host: str, *, has_zookeeper: bool) -> Mapping[str, str]:
    """Return the default settings of a cluster with one broker for each core of machine `host`.

    The machine is the rack, so that replicas are on different machines if there are enough. A single machine keeps one
    replica, as others would die with it. A cluster with ZooKeeper has several machines and keeps three.
    """
    return {**cluster_defaults(MOST_REPLICAS if has_zookeeper else 1), "broker.rack": host}


def broker_ids(config: BrokerConfig, brokers: int) -> range:
    """Return the ids of `brokers` brokers on this machine."""
    first = max(config.broker_id, 1)
    return range(first, first + brokers)


def broker_settings(config: BrokerConfig, number: int) -> dict[str, str]:
    """Return the settings that the `number`th broker of this machine, from 1, has besides the common `config`."""
    further = PORTS_APART * (number - 1)
    broker_id = broker_ids(config, number)[-1]
    settings = {
        "broker.id": str(broker_id),
        "log.dirs": ",".join(f"{folder}/broker-{broker_id}" for folder in config.log_dirs),
        "grpc.listener": _with_port_raised(config.grpc_listener, further),
        "listeners": ",".join(_with_port_raised(listener, further) for listener in config.listeners),
    }
    for key, address in (
        ("grpc.advertised.listener", config.grpc_advertised_listener),
        (
            "advertised.listeners",
            ",".join(_with_port_raised(listener, further) for listener in config.advertised_listeners),
        ),
        ("metrics.listener", config.metrics_listener),
    ):
        if address:
            settings[key] = address if "://" in address else _with_port_raised(address, further)
    if not config.zookeeper_connect:
        settings["cluster.store"] = config.cluster_store or f"{config.log_dirs[0]}/{CLUSTER_STORE}"
    return settings


def _with_port_raised(listener: str, further: int) -> str:
    """Return HOST:PORT or NAME://HOST:PORT with the port raised by `further`."""
    host, _, port = listener.rpartition(":")
    if not port.isdigit() or int(port) == 0:
        return listener
    return f"{host}:{int(port) + further}"


_THREE = """\
# Broker {number} of three on one machine, with ZooKeeper. Start ZooKeeper, then each of the three with
#     sparklog up --config conf/three-brokers/broker-{number}.toml
# Brokers on machines of their own have the same ports, and advertise the names of their machines to clients
# (grpc.advertised.listener, advertised.listeners). All other keys are as in conf/broker.toml.
"""


def broker_toml(number: int) -> str:
    """Return the configuration file of one of three brokers with ZooKeeper."""
    config = BrokerConfig(
        log_dirs=("./sparklog-data",), zookeeper_connect="127.0.0.1:2181", listeners=("PLAINTEXT://127.0.0.1:9092",)
    )
    settings = {
        **broker_settings(config, number),
        "zookeeper.connect": config.zookeeper_connect,
        **cluster_defaults(MOST_REPLICAS),
    }
    lines = [f"{key} = {_toml_value(value)}\n" for key, value in settings.items()]
    return _THREE.format(number=number) + "".join(lines)


def _toml_value(value: str) -> str:
    return value if value.isdigit() or value in ("true", "false") else f'"{value}"'


def main(arguments: Iterable[str]) -> None:
    """Write the files into the folder named by the only argument."""
    [folder] = map(Path, arguments)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, MOST_REPLICAS + 1):
        (folder / f"broker-{number}.toml").write_text(broker_toml(number), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

"""The cluster store that a broker's configuration names.

zookeeper.connect       a ZooKeeper ensemble: for brokers on several machines
cluster.store           an SQLite file that brokers on one machine share
neither                 cluster.sqlite in the broker's first log directory: a cluster of one broker
"""

from __future__ import annotations

import ssl
from importlib.util import find_spec

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import ConfigError
from sparklog.base.jaas import DIGEST_MODULE, parse_login
from sparklog.base.pem import read_pem
from sparklog.cluster.sqlite import SqliteStore
from sparklog.cluster.store import Store

CLUSTER_STORE = "cluster.sqlite"
HTTPS = "HTTPS"


def open_store(config: BrokerConfig) -> Store:
    """Return the cluster store that the configuration names, opened. Blocks.

    Raises StoreError if the file cannot be opened, or if no ZooKeeper server answers in time; ConfigError, with the
    key's name, if zookeeper.ssl.* or zookeeper.sasl.* are invalid.
    """
    shows_certificate = config.zookeeper_ssl_client_enable and config.zookeeper_ssl_keystore_location
    if config.zookeeper_set_acl and not (shows_certificate or config.zookeeper_sasl_jaas_config):
        raise ConfigError(
            "zookeeper.set.acl needs zookeeper.sasl.jaas.config, or zookeeper.ssl.client.enable and "
            "zookeeper.ssl.keystore.location: ZooKeeper must know whose nodes they are"
        )
    if config.zookeeper_connect:
        # Imported here: kazoo takes a tenth of a second to import.
        from sparklog.cluster.zookeeper import ZookeeperLogin, ZookeeperStore, ZookeeperTls

        tls = None
        if config.zookeeper_ssl_client_enable:
            _check_files(config)
            tls = ZookeeperTls(
                truststore=config.zookeeper_ssl_truststore_location,
                keystore=config.zookeeper_ssl_keystore_location,
                key_password=config.zookeeper_ssl_keystore_password,
                checks_names=config.zookeeper_ssl_endpoint_identification_algorithm == HTTPS,
            )

        return ZookeeperStore.open(
            config.zookeeper_connect,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            connection_timeout_ms=config.zookeeper_connection_timeout_ms,
            tls=tls,
            login=ZookeeperLogin(*_login(config)) if config.zookeeper_sasl_jaas_config else None,
            sets_acl=config.zookeeper_set_acl,
        )
    return SqliteStore.open(store_file(config), session_timeout_ms=config.cluster_store_session_timeout_ms)


def _login(config: BrokerConfig) -> tuple[str, str]:
    """Return user and password. Raises ConfigError if there are none, or if kazoo cannot log in."""
    key = "zookeeper.sasl.jaas.config"
    if find_spec("puresasl") is None:
        raise ConfigError(f"{key} is set, but pure-sasl is not installed: pip install 'sparklog[zookeeper-sasl]'")
    login = parse_login(key, config.zookeeper_sasl_jaas_config, DIGEST_MODULE)
    if not (login.option("username") and login.option("password")):
        raise ConfigError(f"{key}: {DIGEST_MODULE} needs username and password")
    return login.option("username"), login.option("password")


def _check_files(config: BrokerConfig) -> None:
    """Raises ConfigError, with the key's name, if a file is invalid: kazoo would retry for ever."""
    for key, path in (
        ("zookeeper.ssl.truststore.location", config.zookeeper_ssl_truststore_location),
        ("zookeeper.ssl.keystore.location", config.zookeeper_ssl_keystore_location),
    ):
        if path:
            read_pem(key, path)
    if keystore := config.zookeeper_ssl_keystore_location:
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_cert_chain(keystore, password=config.zookeeper_ssl_keystore_password)
        except (ssl.SSLError, OSError) as error:
            raise ConfigError(
                f"zookeeper.ssl.keystore.location = {keystore!r}: no private key that zookeeper.ssl.keystore.password "
                f"opens, with the certificate that belongs to it ({getattr(error, 'reason', None) or error})"
            ) from None


def session_timeout_ms(config: BrokerConfig) -> int:
    """Return the session time-out in ms: a broker that is silent for longer counts as dead."""
    return config.zookeeper_session_timeout_ms if config.zookeeper_connect else config.cluster_store_session_timeout_ms


def store_file(config: BrokerConfig) -> str:
    """Return the path of the store's SQLite file, which is not used with zookeeper.connect."""
    return config.cluster_store or f"{config.log_dirs[0]}/{CLUSTER_STORE}"

"""Reads private keys and certificates in PEM files (KIP-651) for gRPC and Python's `ssl`."""

from __future__ import annotations

from sparklog.base.errors import ConfigError

_ENCRYPTED = (b"-----BEGIN ENCRYPTED PRIVATE KEY", b"\nProc-Type: 4,ENCRYPTED")


def read_pem(key: str, path: str) -> bytes:
    """Return the file's content. Raises ConfigError, naming the configuration key, if it is unreadable or not PEM."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise ConfigError(f"{key} = {path!r}: {error.strerror}") from None
    if b"-----BEGIN " not in content:
        raise ConfigError(
            f"{key} = {path!r} is not a PEM file; make one of a PKCS12 store with: "
            "openssl pkcs12 -in store.p12 -noenc -out store.pem"
        )
    return content


def read_keystore_for_grpc(key: str, path: str) -> bytes:
    """Return the file's content, as `read_pem`.

    Also raises ConfigError if the private key is encrypted, which gRPC cannot read.
    """
    content = read_pem(key, path)
    if any(line in content for line in _ENCRYPTED):
        raise ConfigError(
            f"{key} = {path!r}: gRPC takes no encrypted private key; write it without a password with: "
            "openssl pkey -in KEYSTORE -out key.pem"
        )
    return content

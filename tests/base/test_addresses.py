import pytest

from sparklog.base.addresses import Address
from sparklog.base.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:9094", "127.0.0.1", 9094), ("localhost:0", "localhost", 0), ("[::1]:65535", "::1", 65535)],
)
def test_an_address_is_written_as_it_was_read(text: str, host: str, port: int) -> None:
    assert Address.parse(text, "key") == (host, port)
    assert str(Address.parse(text, "key")) == text


@pytest.mark.parametrize(
    "text", ["", "9094", "host", "host:", ":9094", "host:99999", "host:-1", "host:x", "[]:1", "host:١"]
)
def test_anything_else_is_told_with_its_key(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^grpc\.listener = .*: it must be HOST:PORT$"):
        Address.parse(text, "grpc.listener")


def test_an_ipv6_host_needs_brackets() -> None:
    with pytest.raises(ConfigError, match=r"in brackets, as \[::1\]:9094"):
        Address.parse("::1:9094", "grpc.listener")

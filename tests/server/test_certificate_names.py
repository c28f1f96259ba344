"""The names of clients with certificates."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from sparklog.server.certificate_names import distinguished_name

Names = list[list[tuple[x509.ObjectIdentifier, str]]]


def certificate_of(names: Names) -> bytes:
    """A self-signed DER certificate whose subject has these names, in the order in which they are encoded."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [x509.RelativeDistinguishedName([x509.NameAttribute(*name) for name in part]) for part in names]
    )
    day = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), 1, day, day)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (
            [
                [(NameOID.COUNTRY_NAME, "DE")],
                [(NameOID.STATE_OR_PROVINCE_NAME, "Berlin")],
                [(NameOID.ORGANIZATION_NAME, "Example")],
                [(NameOID.ORGANIZATIONAL_UNIT_NAME, "shop")],
                [(NameOID.COMMON_NAME, "billing")],
            ],
            "CN=billing,OU=shop,O=Example,ST=Berlin,C=DE",
        ),
        ([[(NameOID.COMMON_NAME, 'a,b+c="d" ')]], 'CN=a\\,b\\+c\\=\\"d\\"\\ '),
        ([[(NameOID.COMMON_NAME, " #<y>;\\ ü_*")]], "CN=\\ \\#\\<y\\>\\;\\\\ ü_*"),
        ([[(NameOID.COMMON_NAME, "   ")]], "CN=\\ \\ \\ "),
        (
            [[(NameOID.COMMON_NAME, "x"), (NameOID.USER_ID, "u")], [(NameOID.DOMAIN_COMPONENT, "org")]],
            "DC=org,CN=x+UID=u",
        ),
        (
            [[(NameOID.COMMON_NAME, "x")], [(NameOID.EMAIL_ADDRESS, "a@b")]],
            "1.2.840.113549.1.9.1=#1603614062,CN=x",
        ),
    ],
)
def test_names_are_written_as_java_writes_them(names: Names, expected: str) -> None:
    assert distinguished_name(certificate_of(names)) == expected

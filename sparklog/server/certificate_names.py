"""Principal of a client with a certificate: the certificate's subject in Java's notation (RFC 2253).

The order of the attributes is reversed. An attribute without a short name in RFC 2253 is written as ``OID=#`` and the
hexadecimal DER value. So principals configured for Apache Kafka match: ``User:CN=billing,OU=shop,O=Example``.
"""

from __future__ import annotations

import re
import ssl
from typing import TYPE_CHECKING

from sparklog.security.principal_mapping import PrincipalMapper

if TYPE_CHECKING:
    from asn1crypto.x509 import NameTypeAndValue

ANONYMOUS = "User:ANONYMOUS"
"""The principal of a client without authentication."""
_SHORT_NAMES = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED = str.maketrans({char: f"\\{char}" for char in ',=+<>#;"\\'})

_BLANKS_AROUND = re.compile(r"^ +| +$")
_ESCAPED_BLANK = r"\ "


def principal_of(connection: ssl.SSLObject | ssl.SSLSocket | None, mapper: PrincipalMapper) -> str:
    """Return the principal of the peer's verified certificate, or User:ANONYMOUS without one.

    Raises SaslAuthenticationFailed if no rule applies to the certificate.
    """
    shown = connection.getpeercert(binary_form=True) if connection else None
    return mapper.principal(distinguished_name(shown)) if shown else ANONYMOUS


def distinguished_name(certificate: bytes) -> str:
    """Return the subject of a DER certificate in the notation described at the head of this file."""
    from asn1crypto.x509 import Certificate  # here: a tenth of a broker's import time

    subject = Certificate.load(certificate).subject.chosen
    return ",".join("+".join(map(_attribute, part)) for part in reversed(subject))


def _attribute(attribute: NameTypeAndValue) -> str:
    oid, value = attribute["type"].dotted, attribute["value"]
    if oid not in _SHORT_NAMES:
        return f"{oid}=#{value.dump().hex()}"
    text = value.native.translate(_ESCAPED)
    return f"{_SHORT_NAMES[oid]}={_BLANKS_AROUND.sub(lambda blanks: _ESCAPED_BLANK * len(blanks[0]), text)}"


def principal_of_pem(certificate: bytes, mapper: PrincipalMapper) -> str:
    """Return the principal of a verified certificate in PEM. Raises as `principal_of` does."""
    from asn1crypto.pem import unarmor

    _, _, der = unarmor(certificate)
    return mapper.principal(distinguished_name(der))

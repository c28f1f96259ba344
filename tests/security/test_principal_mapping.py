"""Principals of certificates, with the examples of Apache Kafka's SslPrincipalMapperTest and of its documentation."""

from __future__ import annotations

import pytest

from sparklog.base.errors import ConfigError, SaslAuthenticationFailed
from sparklog.security.principal_mapping import PrincipalMapper

DUKE = "CN=Duke, OU=ServiceUsers, O=Org, C=US"


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        ("", DUKE, DUKE),
        ("DEFAULT", DUKE, DUKE),
        ("RULE:^CN=(.*?), OU=ServiceUsers.*$/$1/L, DEFAULT", DUKE, "duke"),
        ("RULE:^CN=(.*?), OU=(.*?), O=(.*?), C=(.*?)$/$1@$2/U", DUKE, "DUKE@SERVICEUSERS"),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/", DUKE, "Duke"),
        ("RULE:^CN=other$/x/,RULE:^CN=(.*?),.*$/$1/", DUKE, "Duke"),
        ("RULE:^CN=other$/x/,DEFAULT", DUKE, DUKE),
        (r"RULE:^CN=([^\/]*)\/.*$/$1/", "CN=kafka/host", "kafka"),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_makes_the_principal(rules: str, name: str, principal: str) -> None:
    assert PrincipalMapper(rules).principal(name) == f"User:{principal}"


@pytest.mark.parametrize("rules", ["RULE:^CN=other$/x/", "RULE:CN=Duke/x/"])
def test_a_certificate_without_a_rule_is_refused(rules: str) -> None:
    with pytest.raises(SaslAuthenticationFailed, match="CN=Duke"):
        PrincipalMapper(rules).principal(DUKE)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("RULE", "'RULE' is no rule"),
        ("RULE:^CN=(.*)$/$1/X", "is no rule"),
        ("RULE:^CN=(.*$/$1/", "is not a regular expression"),
        ("RULE:^CN=(.*)$/$2/", "a group that"),
        ("DEFAULT,nonsense", "'nonsense' is no rule"),
    ],
)
def test_invalid_rules_are_refused_at_the_start(rules: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PrincipalMapper(rules)

"""The authorizer of one broker: the cluster's ACLs as the controller said last, and the rules of the configuration."""

from __future__ import annotations

from collections.abc import Iterable

from sparklog.base.acls import AclBinding, AclOperation, AclResourceType
from sparklog.base.config import BrokerConfig
from sparklog.base.config_keys import split_principals
from sparklog.security.acls import AclRules, Acls, Action, Decision, Subject


class Authorizer:
    """Decides what clients may do. Used on one event loop."""

    def __init__(self, rules: AclRules, *, is_enabled: bool = True) -> None:
        """`is_enabled`: whether there are ACLs. Without them, everybody may do everything."""
        self.is_enabled = is_enabled
        self._acls = Acls((), rules)

    @classmethod
    def of(cls, config: BrokerConfig) -> Authorizer:
        """Return the authorizer that the configuration asks for; it has no ACLs yet."""
        rules = AclRules(
            super_users=split_principals(config.super_users),
            allow_everyone_if_no_acl_found=config.allow_everyone_if_no_acl_found,
        )
        return cls(rules, is_enabled=bool(config.authorizer_class_name))

    @property
    def acls(self) -> frozenset[AclBinding]:
        """All ACLs of the cluster, as this broker knows them."""
        return self._acls.bindings

    def set_acls(self, acls: Iterable[AclBinding]) -> None:
        """Replace the ACLs. Decisions from now on are based on these."""
        self._acls = Acls(acls, self._acls.rules)

    def decide(self, subject: Subject, action: Action) -> Decision:
        """Return whether the subject may do this, and why."""
        return self._acls.decide(subject, action)

    def is_allowed(self, subject: Subject, action: Action) -> bool:
        """Return whether the subject may do this."""
        return not self.is_enabled or self._acls.decide(subject, action).is_allowed

    def is_allowed_somewhere(self, subject: Subject, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """Return whether the subject may do this with some resource of the type, which need not exist."""
        return not self.is_enabled or self._acls.is_allowed_somewhere(subject, operation, resource_type)

"""`sparklog acls`: add, list and remove ACLs, and explain a decision.

The options are those of kafka-acls.sh. `why` fetches all ACLs and the broker's configuration, and decides by the same
rules as the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING, Any

import click

from sparklog.base.acls import (
    ANY_NAME,
    CLUSTER_NAME,
    OPERATIONS,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    kafka_name,
)
from sparklog.base.config_keys import split_principals
from sparklog.base.errors import ClientError, SecurityDisabled
from sparklog.cli.common import admin_client, bootstrap_option, confirmed, json_option, print_json, print_table
from sparklog.security.acls import AclRules, Acls, Action, Subject

if TYPE_CHECKING:
    from sparklog.client import Admin

DENIED = REFUSED = 1
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    AclResourceType.TOPIC,
    AclResourceType.GROUP,
    AclResourceType.CLUSTER,
    AclResourceType.TRANSACTIONAL_ID,
)
_READ, _WRITE, _CREATE, _DESCRIBE = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DESCRIBE,
)
NO_AUTHORIZER = (
    "the brokers have no authorizer: set authorizer.class.name and super.users in their configuration, and start them "
    "again"
)
TYPES = {"topic": TOPIC, "group": GROUP, "cluster": CLUSTER, "transactional-id": TRANSACTIONAL_ID}
Resource = tuple[AclResourceType, str]


def operation_named(text: str) -> AclOperation:
    """Return the operation, such as Read, DescribeConfigs or describe-configs. Raises click.UsageError."""
    plain = text.replace("-", "").replace("_", "").lower()
    known = {each.name.replace("_", "").lower(): each for each in AclOperation if each > AclOperation.ANY}
    if plain not in known:
        raise click.UsageError(f"{text!r} is no operation: one of {', '.join(map(kafka_name, known.values()))}")
    return known[plain]


def principal_named(text: str) -> str:
    """Return the principal; a name without a type is a user."""
    return text if ":" in text else f"User:{text}"


@click.group("acls")
def command() -> None:
    """Say who may do what with topics, groups, transactional ids and the cluster.

    \b
      sparklog acls add --allow-principal alice --producer --topic orders
      sparklog acls add --allow-principal bob --consumer --topic orders --group billing
      sparklog acls add --allow-principal etl --operation Read --topic raw- --resource-pattern-type prefixed
      sparklog acls add --deny-principal User:* --deny-host 10.9.0.0/16 --operation All --cluster
      sparklog acls list --topic orders
      sparklog acls remove --topic orders --allow-principal alice
      sparklog acls why alice Write topic:orders

    A denial wins over permission. Read, Write, Delete and Alter allow Describe as well, AlterConfigs allows
    DescribeConfigs. Super users (super.users) may do everything; whatever no ACL covers is refused, unless
    allow.everyone.if.no.acl.found is set. Brokers apply a change a moment after the command.
    """


def resource_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with the options that name resources."""
    for option in (
        click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="A topic; * stands for all."),
        click.option("--group", "groups", multiple=True, metavar="GROUP", help="A group; * stands for all."),
        click.option("--transactional-id", "ids", multiple=True, metavar="ID", help="A transactional id, or a sink."),
        click.option("--cluster", "has_cluster", is_flag=True, help="The cluster itself."),
    ):
        function = option(function)
    return function


def principal_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with the options that name principals and their hosts."""
    for option in (
        click.option("--allow-principal", "allowed", multiple=True, metavar="USER", help="Who may; User:*: everybody."),
        click.option("--deny-principal", "denied", multiple=True, metavar="USER", help="Who must not."),
        click.option("--allow-host", "allowed_hosts", multiple=True, metavar="HOST", help="From where: an address, a "
                     "network such as 10.0.0.0/8, or * (the default)."),
        click.option("--deny-host", "denied_hosts", multiple=True, metavar="HOST", help="From where they must not."),
    ):  # fmt: skip
        function = option(function)
    return function


def operation_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with --operation."""
    return click.option(
        "--operation", "operations", multiple=True, metavar="OPERATION", help="What; may be repeated. All: everything."
    )(function)


@command.command()
@principal_options
@operation_option
@resource_options
@click.option(
    "--resource-pattern-type", "pattern", type=click.Choice(["literal", "prefixed"]), default="literal",
    show_default=True, help="Whether names are whole names, or the beginning of names.",
)  # fmt: skip
@click.option("--producer", is_flag=True, help="Write, Describe and Create on topics, Write on transactional ids.")
@click.option("--consumer", is_flag=True, help="Read and Describe on topics, Read on groups.")
@bootstrap_option
def add(
    allowed: tuple[str, ...],
    denied: tuple[str, ...],
    allowed_hosts: tuple[str, ...],
    denied_hosts: tuple[str, ...],
    operations: tuple[str, ...],
    pattern: str,
    producer: bool,
    consumer: bool,
    bootstrap: str,
    **named: Any,
) -> int:
    """Add ACLs: each operation on each resource, for each principal from each host."""
    if not (allowed or denied):
        raise click.UsageError("name somebody with --allow-principal or --deny-principal")
    chosen = [
        *((AclPermission.ALLOW, *each) for each in product(allowed, allowed_hosts or (ANY_NAME,))),
        *((AclPermission.DENY, *each) for each in product(denied, denied_hosts or (ANY_NAME,))),
    ]
    kind = PatternType[pattern.upper()]
    acls = [
        AclBinding(
            resource_type, name, PatternType.LITERAL if resource_type is CLUSTER else kind, principal_named(principal),
            host, operation, permission,
        )
        for resource_type, name, operation in _rights(_resources(**named), operations, producer, consumer)
        for permission, principal, host in chosen
    ]  # fmt: skip
    with admin_client(bootstrap) as admin, _explained_missing_authorizer():
        admin.create_acls(acls)
    for acl in acls:
        click.echo(f"added: {acl}")
    return 0


@command.command("list")
@click.option("--principal", metavar="USER", help="Only ACLs about this principal.")
@resource_options
@bootstrap_option
@json_option
def list_acls(principal: str | None, bootstrap: str, as_json: bool, **named: Any) -> None:
    """List ACLs; with resources, those that apply to them, whichever pattern they have."""
    resources: list[tuple[AclResourceType, str | None]] = [*_resources(**named)] or [(AclResourceType.ANY, None)]
    with admin_client(bootstrap) as admin, _explained_missing_authorizer():
        found = sorted({acl for each in resources for acl in admin.describe_acls(_filter(*each, principal=principal))})
    if as_json:
        for acl in found:
            print_json(_fields(acl))
        return
    rows = [tuple(_fields(acl).values()) for acl in found]
    print_table(("RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION"), rows)


@command.command()
@principal_options
@operation_option
@resource_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@bootstrap_option
def remove(
    allowed: tuple[str, ...],
    denied: tuple[str, ...],
    allowed_hosts: tuple[str, ...],
    denied_hosts: tuple[str, ...],
    operations: tuple[str, ...],
    yes: bool,
    bootstrap: str,
    **named: Any,
) -> int:
    """Remove the ACLs of resources, of any pattern: all of them, or those about these principals and operations."""
    resources = _resources(**named)
    if not resources:
        raise click.UsageError("name resources with --topic, --group, --transactional-id or --cluster")
    who: list[tuple[AclPermission, str | None, str | None]] = [
        *((AclPermission.ALLOW, *each) for each in product(allowed, allowed_hosts or (None,))),
        *((AclPermission.DENY, *each) for each in product(denied, denied_hosts or (None,))),
    ] or [(AclPermission.ANY, None, None)]
    what = [operation_named(each) for each in operations] or [AclOperation.ANY]
    filters = [
        AclBindingFilter(
            resource_type, name, PatternType.ANY, principal and principal_named(principal), host, operation, permission
        )
        for resource_type, name in resources
        for permission, principal, host in who
        for operation in what
    ]
    with admin_client(bootstrap) as admin, _explained_missing_authorizer():
        found = sorted({acl for each in filters for acl in admin.describe_acls(each)})
        if not found:
            raise ClientError("there is no such ACL: see what there is with: sparklog acls list")
        if not yes:
            for acl in found:
                click.echo(str(acl), err=True)
            if not confirmed(f"remove {'this ACL' if len(found) == 1 else f'these {len(found)} ACLs'}?"):
                click.echo("nothing was removed: answer y, or give --yes", err=True)
                return REFUSED
        for acl in admin.delete_acls(filters):
            click.echo(f"removed: {acl}")
    return 0


@command.command()
@click.argument("principal", metavar="USER")
@click.argument("operation", metavar="OPERATION")
@click.argument("resource", metavar="RESOURCE")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="From where.")
@bootstrap_option
@json_option
def why(principal: str, operation: str, resource: str, host: str, bootstrap: str, as_json: bool) -> int:
    """Say whether USER may do OPERATION on RESOURCE, and which rule decides. Exit status 1 if not.

    RESOURCE is topic:NAME, group:NAME, transactional-id:NAME or cluster.
    """
    kind, name = _resource_named(resource)
    wanted = operation_named(operation)
    if wanted not in OPERATIONS[kind]:
        known = ", ".join(map(kafka_name, OPERATIONS[kind]))
        raise click.UsageError(f"there is no {kafka_name(wanted)} of a {resource.partition(':')[0]}, but {known}")
    with admin_client(bootstrap) as admin, _explained_missing_authorizer():
        acls = Acls(admin.describe_acls(), _rules(admin))
    decision = acls.decide(Subject(principal_named(principal), host), Action(wanted, kind, name))
    may = "may" if decision.is_allowed else "may not"
    if as_json:
        print_json(
            {
                "allowed": decision.is_allowed,
                "reason": decision.reason.value,
                "acl": _fields(decision.acl) if decision.acl else None,
            }
        )
    else:
        reason = f"{decision.acl}" if decision.acl else decision.reason.value
        click.echo(
            f"{principal_named(principal)} {may} {kafka_name(wanted)} {kafka_name(kind)} {name} from {host}: {reason}"
        )
    return 0 if decision.is_allowed else DENIED


def _rules(admin: Admin) -> AclRules:
    """Return the other rules, from the configuration of a broker."""
    configs = admin.describe_configs(broker=admin.describe_cluster().brokers[0].id)
    return AclRules(
        super_users=split_principals(configs["super.users"].value or ""),
        allow_everyone_if_no_acl_found=configs["allow.everyone.if.no.acl.found"].value == "true",
    )


def _resources(
    topics: tuple[str, ...], groups: tuple[str, ...], ids: tuple[str, ...], has_cluster: bool
) -> list[Resource]:
    cluster = [(CLUSTER, CLUSTER_NAME)] if has_cluster else []
    return [
        *((TOPIC, name) for name in topics),
        *((GROUP, name) for name in groups),
        *((TRANSACTIONAL_ID, name) for name in ids),
        *cluster,
    ]


def _rights(
    resources: list[Resource], operations: tuple[str, ...], producer: bool, consumer: bool
) -> Iterator[tuple[AclResourceType, str, AclOperation]]:
    """Yield resources with their operations. Raises click.UsageError for no operation, or an impossible one."""
    if not resources:
        raise click.UsageError("name resources with --topic, --group, --transactional-id or --cluster")
    if not (operations or producer or consumer):
        raise click.UsageError("say what with --operation, --producer or --consumer")
    wanted = [operation_named(each) for each in operations]
    for kind, name in resources:
        for operation in wanted:
            if operation is not AclOperation.ALL and operation not in OPERATIONS[kind]:
                known = ", ".join(map(kafka_name, OPERATIONS[kind]))
                raise click.UsageError(f"there is no {kafka_name(operation)} of a {kafka_name(kind)}, but {known}, All")
        implied = {
            TOPIC: [_WRITE, _DESCRIBE, _CREATE] * producer + [_READ, _DESCRIBE] * consumer,
            GROUP: [_READ] * consumer,
            TRANSACTIONAL_ID: [_WRITE, _DESCRIBE] * producer,
        }
        for operation in dict.fromkeys([*wanted, *implied.get(kind, ())]):
            yield kind, name, operation


def _resource_named(text: str) -> Resource:
    kind, colon, name = text.partition(":")
    found = TYPES.get(kind.lower())
    if found is CLUSTER:
        return CLUSTER, CLUSTER_NAME
    if found is None or not (colon and name):
        raise click.UsageError(f"{text!r} is no resource: topic:NAME, group:NAME, transactional-id:NAME or cluster")
    return found, name


def _filter(resource_type: AclResourceType, name: str | None, *, principal: str | None) -> AclBindingFilter:
    pattern = PatternType.ANY if name is None else PatternType.MATCH
    return AclBindingFilter(resource_type, name, pattern, principal and principal_named(principal))


def _fields(acl: AclBinding) -> dict[str, str]:
    return {
        "resource": kafka_name(acl.resource_type),
        "name": acl.name,
        "pattern": kafka_name(acl.pattern_type),
        "principal": acl.principal,
        "host": acl.host,
        "operation": kafka_name(acl.operation),
        "permission": kafka_name(acl.permission),
    }


@contextmanager
def _explained_missing_authorizer() -> Iterator[None]:
    """Raise ClientError with the next step if the brokers have no authorizer."""
    try:
        yield
    except SecurityDisabled:
        raise ClientError(NO_AUTHORIZER) from None

"""`sparklog quotas`: set, list and remove the quotas of users, clients and addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from sparklog.base.errors import ClientError
from sparklog.base.quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    UNITS,
    USER,
    Entity,
    QuotaChange,
    QuotaFilter,
    QuotaMatch,
    entity,
)
from sparklog.cli.cluster_plan import RateParam
from sparklog.cli.common import NOTHING, admin_client, bootstrap_option, json_option, print_json, print_table

DEFAULT = "--default-"
_TITLES = {
    PRODUCER_BYTE_RATE: "PRODUCE B/S",
    CONSUMER_BYTE_RATE: "CONSUME B/S",
    REQUEST_PERCENTAGE: "REQUESTS %",
    CONTROLLER_MUTATION_RATE: "MUTATIONS/S",
    CONNECTION_CREATION_RATE: "CONNECTIONS/S",
}


@click.group("quotas")
def command() -> None:
    """Say how much users, clients and addresses may ask of each broker.

    \b
      sparklog quotas set --user alice --produce 10MiB --consume 20MiB
      sparklog quotas set --user alice --client-id etl --produce 1MiB
      sparklog quotas set --default-user --requests 50
      sparklog quotas set --user ci --mutations 5
      sparklog quotas set --ip 10.0.0.7 --connections 10
      sparklog quotas list
      sparklog quotas remove --user alice

    The most specific quota applies: user and client id, user, default user, client id, default client id. All clients
    of a user share the user's quota; of a default, each has its own. A client over its quota is answered, told how long
    to wait, and served again after that time. Brokers apply a change a moment after the command.
    """


def entity_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with the options of an entity."""
    for option in (
        click.option("--user", metavar="USER", help="A user, without User:."),
        click.option("--default-user", is_flag=True, help="Each user without a quota of its own."),
        click.option("--client-id", metavar="ID", help="The client.id of clients; with a user, that user's."),
        click.option("--default-client-id", is_flag=True, help="Each client id without a quota of its own."),
        click.option("--ip", metavar="ADDRESS", help="An address that opens connections."),
        click.option("--default-ip", is_flag=True, help="Each address without a quota of its own."),
    ):
        function = option(function)
    return function


@command.command("set")
@entity_options
@click.option("--produce", "producer_byte_rate", type=RateParam(), metavar="RATE", help="Bytes per second (10MiB).")
@click.option("--consume", "consumer_byte_rate", type=RateParam(), metavar="RATE", help="Bytes per second.")
@click.option(
    "--requests", "request_percentage", type=float, metavar="PERCENT", help="Percent of a broker's event loop."
)
@click.option("--mutations", "controller_mutation_rate", type=float, metavar="RATE",
              help="Partitions created and deleted per second.")  # fmt: skip
@click.option(
    "--connections", "connection_creation_rate", type=int, metavar="RATE", help="Connections per second; of --ip."
)
@bootstrap_option
def set_quotas(bootstrap: str, **given: Any) -> None:
    """Set quotas of a user, a client id, both, or an address; other quotas of it stay."""
    values = {key: float(given[key]) for key in UNITS if given[key] is not None}
    if not values:
        raise click.UsageError("say how much with --produce, --consume, --requests, --mutations or --connections")
    named = _entity(given)
    with admin_client(bootstrap) as admin:
        admin.alter_client_quotas([QuotaChange(entity=named, values=values)])
    for key, value in values.items():
        click.echo(f"{_text(named)}: {key} = {value:.15g} ({UNITS[key]})")


@command.command("list")
@entity_options
@bootstrap_option
@json_option
def list_quotas(bootstrap: str, as_json: bool, **given: Any) -> None:
    """List quotas; with an entity, those that have it as a part."""
    filters = [
        QuotaFilter(type=type, match=QuotaMatch.EXACT if name is not None else QuotaMatch.DEFAULT, name=name)
        for type, name in _parts(given).items()
    ]
    with admin_client(bootstrap) as admin:
        found = admin.describe_client_quotas(filters)
    if as_json:
        for quota in found:
            print_json({"entity": {part.type: part.name for part in quota.entity}, **quota.values})
        return
    if not found:
        click.echo("no quotas; set one with: sparklog quotas set --user USER --produce RATE", err=True)
        return
    shown = [key for key in UNITS if any(key in quota.values for quota in found)]
    rows = [(_text(quota.entity), *(_number(quota.values.get(key)) for key in shown)) for quota in found]
    print_table(("ENTITY", *(_TITLES[key] for key in shown)), rows)


@command.command()
@entity_options
@click.option("--key", "keys", multiple=True, type=click.Choice(list(UNITS)), help="Only this quota; may be repeated.")
@bootstrap_option
def remove(bootstrap: str, keys: tuple[str, ...], **given: Any) -> None:
    """Remove the quotas of exactly this entity: all of them, or those of --key."""
    named = _entity(given)
    with admin_client(bootstrap) as admin:
        there = next((quota for quota in admin.describe_client_quotas() if quota.entity == named), None)
        removed = [key for key in (keys or UNITS) if there and key in there.values]
        if not removed:
            raise ClientError(f"{_text(named)} has no such quota: see what there is with: sparklog quotas list")
        admin.alter_client_quotas([QuotaChange(entity=named, removed=removed)])
    click.echo(f"{_text(named)}: removed {', '.join(removed)}")


def _entity(given: dict[str, Any]) -> Entity:
    parts = _parts(given)
    if not parts:
        raise click.UsageError("name somebody with --user, --client-id or --ip, or with --default-user and so on")
    if IP in parts and len(parts) > 1:
        raise click.UsageError("an address has quotas of its own: give --ip alone")
    return entity(parts)


def _parts(given: dict[str, Any]) -> dict[str, str | None]:
    parts: dict[str, str | None] = {}
    for type, option in ((USER, "user"), (CLIENT_ID, "client_id"), (IP, "ip")):
        if given[option] is not None:
            parts[type] = given[option]
        if given[f"default_{option}"]:
            if type in parts:
                raise click.UsageError(f"--{type} and {DEFAULT}{type} are two entities")
            parts[type] = None
    return parts


def _text(named: Entity) -> str:
    return ", ".join(str(part) for part in reversed(named))


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.15g}"

"""The command line: one module per tool, imported when that tool is used.

Exit status: 0 success; 1 failure, or nothing found (one line on standard error gives the reason and the next step);
2 invalid command line or configuration; 130 interrupted. Standard output has only text for scripts.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from sparklog import __version__
from sparklog.base.errors import (
    ConfigError,
    NetworkException,
    OffsetOutOfRange,
    RequestTimedOut,
    SparklogError,
    TopicAlreadyExists,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
)
from sparklog.base.extras import advice

FAILED, WRONG_USE, INTERRUPTED = 1, 2, 130

TOOLS = {
    "up": "Run a broker: no configuration needed.",
    "topics": "Create, list, describe, alter and delete topics.",
    "produce": "Write lines, or JSON lines, to a topic.",
    "consume": "Read a topic, from any offset or time.",
    "groups": "List and describe consumer groups, reset their offsets, delete them.",
    "transactions": "List transactions, find those that hang, abort them.",
    "sinks": "List and describe the sinks of Spark queries, reset them.",
    "cluster": "Show unhealthy partitions; move, elect, drain.",
    "acls": "Say who may do what: add, list and remove ACLs, and ask why.",
    "quotas": "Say how much users, clients and addresses may ask for.",
    "users": "Add, list and delete SCRAM users.",
    "jobs": "Compact, retain, replay and audit with Spark, once or on a schedule.",
    "audit": "Check every replica's bytes, indexes and epochs, and print the verdict.",
    "explain": "Say why a topic was compacted, or was not.",
    "dump": "Print what is inside segment and index files.",
    "bench": "Measure what a running broker takes and gives.",
}

NEXT_STEPS: dict[type[SparklogError], str] = {
    NetworkException: (
        "name its gRPC listener, not a Kafka one, with --bootstrap, and security.protocol with --client-config"
    ),
    RequestTimedOut: "the broker's log says what it is doing",
    OffsetOutOfRange: "read what there is with --from-beginning",
    UnknownTopicOrPartition: "see what there is with: sparklog topics list",
    TopicAlreadyExists: "look at it with: sparklog topics describe",
    TransactionalIdNotFound: "see what there is with: sparklog transactions list",
}


class Tools(click.Group):
    """Group of the tools. The list of tools imports none of them, so that help is fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(TOOLS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in TOOLS:
            return None
        command: click.Command = importlib.import_module(f"sparklog.cli.{cmd_name}").command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except NetworkException as silent:
            raise importlib.import_module("sparklog.cli.common").diagnosed(silent, ctx) from None
        except BrokenPipeError:
            # The reader of the output (`| head`) has closed the pipe, so Python's flush at exit goes to /dev/null.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Tools"):
            formatter.write_dl(list(TOOLS.items()))


@click.group(cls=Tools, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sparklog")
def cli() -> None:
    """A log platform for people whose data pipelines run on Spark.

    \b
    A first minute:
      sparklog up &                                  a broker on 127.0.0.1:9094
      sparklog topics create orders --partitions 3
      echo hello | sparklog produce orders
      sparklog consume orders --from-beginning --exit-at-end

    Name the broker with --bootstrap HOST:PORT or SPARKLOG_BOOTSTRAP. Each tool has its own --help.
    """


def main() -> NoReturn:
    """Run the process's command line and exit with its status; never return. Entry point of the `sparklog` script."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # an error is one line, without gRPC's own lines before it
    sys.exit(run())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (by default the process's own) and return its exit status."""
    try:
        return cli.main(arguments, prog_name="sparklog", standalone_mode=False) or 0
    except click.exceptions.NoArgsIsHelpError as no_arguments:
        no_arguments.show()
        return WRONG_USE
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "sparklog"
        return _fail(f"{where}: {error.format_message().rstrip('.')}: see {where} --help", WRONG_USE)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except ModuleNotFoundError as missing:
        if not (what := advice(missing)):
            raise
        return _fail(f"sparklog: {what}", WRONG_USE)
    except (SparklogError, OSError) as error:
        hint = next((f": {text}" for kind, text in NEXT_STEPS.items() if isinstance(error, kind)), "")
        return _fail(f"sparklog: {reason(error)}{hint}", WRONG_USE if isinstance(error, ConfigError) else FAILED)


def reason(error: Exception) -> str:
    """Return the text of an error for the user; an error of the operating system without its number."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error).rstrip(".")


def _fail(message: str, status: int) -> int:
    click.echo(" ".join(message.split()), err=True)
    return status

"""Reference of the command line: the --help text of every command."""

from __future__ import annotations

from collections.abc import Iterator

import click

from sparklog.cli import cli
from sparklog.docs.markdown import page

WIDTH = 110
_INTRODUCTION = """\
`sparklog --help` lists the tools, and every command has a `--help` of its own, which is what this page shows.

Exit status: 0 success; 1 failure, or nothing found; 2 invalid command line or configuration; 130 interrupted.
Jobs have [their own](../operating/jobs.md#running-a-job). Results go to standard output, everything else to
standard error.

`SPARKLOG_BOOTSTRAP` names the brokers for all commands, `SPARKLOG_CLIENT_CONFIG` a file with the keys of
clients."""


def commands_page() -> str:
    """Return the whole page."""
    return page(
        "Command line",
        _INTRODUCTION,
        _sections(cli, click.Context(cli, info_name="sparklog", **cli.context_settings), level=2),
    )


def _sections(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    context.terminal_width = WIDTH
    yield f"{'#' * level} {context.command_path}\n\n```text\n{_help(command, context)}\n```"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                yield from _sections(below, click.Context(below, info_name=name, parent=context), min(level + 1, 4))


def _help(command: click.Command, context: click.Context) -> str:
    return "\n".join(each.rstrip() for each in command.get_help(context).rstrip().splitlines())

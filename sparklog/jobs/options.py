"""Parser of a job's options by its click parameters. The options may come from a command line, a file or Python.

On the command line and with spark-submit, click parses them. In a table of jobs.toml, or a dictionary in Python, the
names have underscores. Values become command-line arguments, which the same parameters parse:

    topic = ["orders", "cust.*"]      --topic=orders --topic=cust.*
    force = true                      --force
    max_bytes = 1_000_000             --max-bytes=1000000
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click

from sparklog.base.config_keys import nearest
from sparklog.base.errors import ConfigError
from sparklog.jobs.job import Job, Options


def parse_options(job: Job, values: Mapping[str, Any], where: Mapping[str, str] | None = None) -> Options:
    """Return all options of a job: `values`, and the defaults of the others.

    Raises ConfigError for an unknown name or a value that is not allowed. The message begins with the text of `where`
    for that name.
    """
    places = where or {}
    known = {str(parameter.name): parameter for parameter in job.parameters}
    options: list[str] = []
    positional: list[str] = []
    for name, value in values.items():
        if name not in known:
            hint = nearest(name, known) or "; it has " + (", ".join(known) or "none")
            raise ConfigError(f"{places.get(name, '')}unknown option {name!r} of {job.name}{hint}")
        parameter = known[name]
        if isinstance(parameter, click.Option):
            options += _arguments(parameter, value)
        else:
            positional += map(str, value if isinstance(value, list | tuple) else [value])
    command = click.Command(job.name, params=list(job.parameters))
    try:
        return command.make_context(job.name, [*options, "--", *positional]).params
    except click.BadParameter as error:
        name = str(error.param.name) if error.param else ""
        raise ConfigError(f"{places.get(name, '')}{name}: {error.message.rstrip('.')}") from None
    except click.UsageError as error:
        raise ConfigError(f"{job.name}: {error.format_message().rstrip('.')}") from None


def _arguments(option: click.Option, value: Any) -> Iterator[str]:
    """Yield the command-line arguments for an option and its value."""
    name = max(option.opts, key=len)
    if option.is_flag and isinstance(value, bool):
        if value or option.secondary_opts:
            yield name if value else option.secondary_opts[0]
        return
    for item in value if isinstance(value, list | tuple) else [value]:
        text = str(item).lower() if isinstance(item, bool) else str(item)
        yield from [f"{name}={text}"] if name.startswith("--") else [name, text]


def topic_filter(texts: Sequence[str]) -> Callable[[str], bool]:
    """Return a function that tells whether --topics selects a topic, by name or by a regular expression.

    The expression must match the whole name. Without --topics, all topics are selected. Raises ConfigError for an
    invalid expression.
    """
    try:
        patterns = [re.compile(text) for text in texts]
    except re.error as error:
        raise ConfigError(f"--topics {error.pattern!r}: {error}") from None
    return lambda topic: not patterns or any(pattern.fullmatch(topic) for pattern in patterns)

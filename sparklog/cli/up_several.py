"""`sparklog up --brokers N|auto`: a cluster on this machine, one process per broker, under one parent.

One line on standard output reports the addresses of all brokers, once they are ready and know one another. The brokers'
logs go to standard error, each line with the broker's number. The parent does not restart a dead broker: it logs the
death, and the command that starts the broker again. The other brokers continue, as a cluster does after a failure.

SIGTERM or Ctrl-C stops the brokers one after another, so that each can hand over its leaderships; a second signal kills
them. If the parent is killed, the brokers stop at the end of their standard input. Exit status: 0 after a clean stop, 1
if a broker could not start or did not stop cleanly, 2 for a wrong configuration.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from sparklog import __version__
from sparklog.base.cluster_config import broker_ids, broker_settings
from sparklog.base.config import BrokerConfig
from sparklog.base.errors import ConfigError
from sparklog.log.directory.checkpoints import META_PROPERTIES

READY = re.compile(r"sparklog \S+ ready: grpc (\S+), (?:kafka (\S+), )?data .*\n")
STOP_WITHIN_S = 60
CANNOT_START, UNCLEAN = 1, 1
logger = logging.getLogger(__name__)


class LocalBroker:
    """The process of one broker."""

    def __init__(self, number: int, arguments: Sequence[str]) -> None:
        self.number = number
        self.grpc = ""
        self.kafka = ""
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, brokers: int) -> bool:
        """Start the process, and return whether the broker is ready. If not, it has logged the reason and has ended.

        brokers: number of brokers of the cluster, with this one
        """
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sparklog.cli.up", *self._arguments, "--child", str(brokers)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C must reach only the parent
        )
        assert process.stdout
        ready = READY.fullmatch((await process.stdout.readline()).decode())
        if ready:
            self.grpc, self.kafka = ready[1], ready[2] or ""
        else:
            await process.wait()
        return bool(ready)

    async def knows_others(self) -> None:
        """Wait until the broker knows all others, has ended, or the time-out is over."""
        assert self._process
        assert self._process.stdout
        await self._process.stdout.readline()

    async def ended(self) -> int:
        """Wait for the process to end and return its exit status."""
        assert self._process
        return await self._process.wait()

    async def stop(self) -> bool:
        """Stop the process, and kill it after STOP_WITHIN_S; return whether it stopped cleanly."""
        process = self._process
        assert process
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(STOP_WITHIN_S):
                    await process.wait()
            except TimeoutError:
                logger.error("broker %d does not stop: it is killed", self.number)
                self.kill()
                await process.wait()
        return process.returncode == 0

    def kill(self) -> None:
        """Send SIGKILL if the process runs; `ended` waits for its end."""
        if self._process and self._process.returncode is None:
            self._process.kill()

    @property
    def command(self) -> str:
        """The command line that starts this broker again."""
        return shlex.join(["sparklog", "up", *self._arguments])


async def run_several(config: BrokerConfig, brokers: int, arguments: Sequence[str]) -> int:
    """Run the brokers until a signal, or until all have ended; return the exit status. Each broker gets `arguments`.

    Raises ConfigError for the log directory of a single broker, whose topics the cluster would not have.
    """
    _check_folders(config)
    ids = broker_ids(config, brokers)
    if found := left_out(config, brokers):
        numbers = ", ".join(map(str, found))
        text = "the data of broker %s lies here too: what it has replicas of lacks one. --brokers %d starts it as well"
        logger.warning(text, numbers, found[-1] - ids[0] + 1)
    stop = asyncio.Event()
    local = [LocalBroker(each, [*arguments, *_broker_arguments(config, number)]) for number, each in enumerate(ids, 1)]
    loop = asyncio.get_running_loop()

    def interrupted() -> None:
        if stop.is_set():
            for broker in local:
                broker.kill()
        stop.set()

    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, interrupted)
    if not await _start(local):
        return CANNOT_START
    await _wait_until_all_known(local, stop)
    if not stop.is_set():
        _say_ready(config, local)
    await _watch(local, stop)
    logger.info("stopping")
    ends = [await broker.stop() for broker in reversed(local)]
    return 0 if all(ends) else UNCLEAN


def _check_folders(config: BrokerConfig) -> None:
    for folder in config.log_dirs:
        if Path(folder, META_PROPERTIES).exists():
            raise ConfigError(
                f"{folder} is the log directory of one broker: start that without --brokers, or choose another folder"
            )


def brokers_for_cores(config: BrokerConfig) -> int:
    """Return the number of cores of this process, at least the number of brokers of earlier runs in these folders."""
    cores = len(os.sched_getaffinity(0))
    before = left_out(config, cores)
    return before[-1] - broker_ids(config, 1)[0] + 1 if before else cores


def left_out(config: BrokerConfig, brokers: int) -> list[int]:
    """Return the ids of brokers of earlier runs in these folders, above those of `brokers` brokers."""
    last = broker_ids(config, brokers)[-1]
    used = (path.parent.name for folder in config.log_dirs for path in Path(folder).glob(f"broker-*/{META_PROPERTIES}"))
    numbers = {int(name.removeprefix("broker-")) for name in used if name.removeprefix("broker-").isdigit()}
    return sorted(number for number in numbers if number > last)


def _broker_arguments(config: BrokerConfig, number: int) -> list[str]:
    return [word for key, value in broker_settings(config, number).items() for word in ("--set", f"{key}={value}")]


async def _start(brokers: list[LocalBroker]) -> bool:
    """Start all brokers at once, and return whether all are ready. If one is not, stop all of them."""
    have_started = await asyncio.gather(*(broker.start(len(brokers)) for broker in brokers))
    failed = [broker.number for broker, has_started in zip(brokers, have_started, strict=True) if not has_started]
    if not failed:
        return True
    await asyncio.gather(*(broker.stop() for broker in brokers))
    which = ", ".join(map(str, failed))
    click.echo(f"sparklog up: broker {which} could not start, and has said why above: none runs", err=True)
    return False


async def _wait_until_all_known(brokers: list[LocalBroker], stop: asyncio.Event) -> None:
    """Wait until each broker knows all others, so that new topics get all their replicas."""
    stopping = asyncio.create_task(stop.wait())
    all_know = asyncio.gather(*(broker.knows_others() for broker in brokers))
    _, late = await asyncio.wait((stopping, all_know), return_when=asyncio.FIRST_COMPLETED)
    for each in late:
        each.cancel()
    await asyncio.gather(*late, return_exceptions=True)


def _say_ready(config: BrokerConfig, brokers: list[LocalBroker]) -> None:
    grpc = ",".join(broker.grpc for broker in brokers)
    kafka = ",".join(broker.kafka for broker in brokers if broker.kafka)
    listeners = f"grpc {grpc}, " + (f"kafka {kafka}, " if kafka else "")
    click.echo(f"sparklog {__version__} ready: {len(brokers)} brokers, {listeners}data {','.join(config.log_dirs)}")


async def _watch(brokers: list[LocalBroker], stop: asyncio.Event) -> None:
    """Wait until `stop` is set or no broker is left. Log each broker that ends."""
    stopping = asyncio.create_task(stop.wait())
    running = {asyncio.create_task(broker.ended()): broker for broker in brokers}
    while running and not stop.is_set():
        done, _ = await asyncio.wait((stopping, *running), return_when=asyncio.FIRST_COMPLETED)
        for task in done & running.keys():
            broker = running.pop(task)
            if not stop.is_set():
                logger.error(
                    "broker %d has ended, %s; %d go on. This starts it again: %s",
                    *(broker.number, _exit_reason(task.result()), len(running), broker.command),
                )
    for task in (stopping, *running):
        task.cancel()
    await asyncio.gather(stopping, *running, return_exceptions=True)


def _exit_reason(status: int) -> str:
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"

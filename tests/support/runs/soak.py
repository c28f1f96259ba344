"""Minutes of chaos, which can be repeated: `make soak SECONDS=600 SEED=1`.

A soak goes through the tests marked `soak` or `soak_only`, file by file, and through simulated clusters, in rounds, and
begins nothing new once SECONDS are over. Round n has the seed SEED + n. It chooses the order of the files, and what the
tests do at random: `support.runs.seeds`, and Hypothesis. For each file the soak prints a line, and where it failed
pytest's output and the command that runs it again.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from support import ROOT, environment
from support.runs.seeds import VARIABLE

SIMULATED_S = 60
SEEDS_PER_ROUND = 100_000
PYTEST = (sys.executable, "-m", "pytest", "-q", "-m", "soak or soak_only")
Command = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One process: the tests of a file, or simulated clusters."""

    name: str
    seed: int
    command: Command

    @property
    def again(self) -> str:
        return f"{VARIABLE}={self.seed} {shlex.join(self.command)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    work: Work
    status: int
    output: str

    @property
    def line(self) -> str:
        closing = (self.output.strip().splitlines() or ["no output"])[-1]
        return f"{'failed' if self.status else 'passed'}  seed {self.work.seed}  {self.work.name}: {closing}"


def files() -> list[str]:
    """Test modules in which something is marked for soaks, as paths below the project."""
    found = subprocess.run([*PYTEST, "--collect-only"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted({line.split("::")[0] for line in found.splitlines() if "::" in line})


def plan(chosen: list[str], first_seed: int) -> Iterator[Work]:
    """Rounds without end; the same for the same seed."""
    for seed in itertools.count(first_seed):
        simulated = ("--from-seed", str(seed * SEEDS_PER_ROUND), "--seconds", str(SIMULATED_S), "--jobs", "1")
        works = [
            Work(
                name="simulated clusters", seed=seed, command=(sys.executable, "-m", "sparklog.testing.sim", *simulated)
            ),
            *(Work(name=file, seed=seed, command=(*PYTEST, f"--hypothesis-seed={seed}", file)) for file in chosen),
        ]
        random.Random(seed).shuffle(works)
        yield from works


def perform(work: Work) -> Done:
    process = subprocess.run(
        work.command,
        cwd=ROOT,
        env={**environment(), VARIABLE: str(work.seed)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Done(work=work, status=process.returncode, output=process.stdout)


def soak(works: Iterator[Work], *, seconds: float, jobs: int) -> list[Done]:
    """What was done, in the order in which it ended."""
    until = time.monotonic() + seconds
    finished: list[Done] = []
    with ThreadPoolExecutor(jobs) as pool:
        running: set[Future[Done]] = {pool.submit(perform, work) for work in itertools.islice(works, jobs)}
        while running:
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                finished.append(future.result())
                tell(finished[-1])
            if time.monotonic() < until:
                running |= {pool.submit(perform, work) for work in itertools.islice(works, len(ended))}
    return finished


def tell(done: Done) -> None:
    print(done.line, flush=True)
    if done.status:
        print(f"{done.output}\nagain: {done.work.again}\n", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make soak", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    finished = soak(plan(files(), options.seed), seconds=options.seconds, jobs=options.jobs)
    failed = sum(done.status != 0 for done in finished)
    last = max(done.work.seed for done in finished)
    print(f"seeds {options.seed} to {last}, {len(finished)} runs: {len(finished) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())

"""Run simulated clusters, one per seed, for a given time: `python -m sparklog.testing.sim --seconds 60 --jobs 2`.

Each seed is one run (run.py). For a seed with anomalies, the program prints the anomalies, the faults, the events,
the last lines of the trace, and a command that repeats the run exactly. With `--shrink`, it first removes the faults
that the failure does not need. The exit status is 1 if any seed failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import itertools
import logging
import multiprocessing
import os
import sys
import threading
import time
import warnings
from collections.abc import Coroutine, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait

from sparklog.testing.sim.faults import Plan
from sparklog.testing.sim.run import Verdict, run
from sparklog.testing.sim.seed import Scenario, scenario_of

SHOWN_ANOMALIES = 8
TOLD_EVERY_S = 60


def main() -> int:
    """Run the seeds that the command line asks for. Return the exit status: 1 if any seed failed, else 0."""
    options = _options()
    if options.seed is not None:
        _expect_killed_coroutines()
        verdict = run(_scenario(options, options.seed))
        if options.shrink and verdict.anomalies:
            verdict = run(shrink(verdict.scenario))
        print(describe(verdict, _flags(options)), flush=True)
        return bool(verdict.anomalies)
    return _run_many(options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sparklog.testing.sim", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long to run seeds")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--from-seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run only this seed, and print what happened")
    parser.add_argument("--brokers", type=int, help="number of brokers; by default, the seed decides")
    parser.add_argument("--lasts", type=float, default=12.0, help="seconds of virtual time with faults")
    parser.add_argument("--transactions", action="store_true", help="let every seed have transactions")
    parser.add_argument("--shrink", action="store_true", help="with --seed: remove faults that do not matter")
    return parser.parse_args()


def _scenario(options: argparse.Namespace, seed: int) -> Scenario:
    scenario = scenario_of(seed, brokers=options.brokers, lasts_s=options.lasts)
    return dataclasses.replace(scenario, transacts=scenario.transacts or options.transactions)


def _flags(options: argparse.Namespace) -> str:
    brokers = f" --brokers {options.brokers}" if options.brokers else ""
    return f"{brokers} --transactions" if options.transactions else brokers


def _run_many(options: argparse.Namespace) -> int:
    """Run seeds in ascending order until the time is up. Return 1 if any failed, else 0."""
    began = told = time.monotonic()
    done = failed = sends = 0
    for verdict in _verdicts(options, began + options.seconds):
        done += 1
        sends += verdict.acknowledged
        if time.monotonic() - told > TOLD_EVERY_S:
            told = time.monotonic()
            print(f"{done} seeds, {failed} failed", file=sys.stderr, flush=True)
        if verdict.anomalies:
            failed += 1
            print(describe(verdict, _flags(options)), flush=True)
    minutes = (time.monotonic() - began) / 60
    print(
        f"{done} seeds from {options.from_seed} on, {failed} failed, {sends} batches acknowledged; "
        f"{done / minutes:.0f} seeds per minute with {options.jobs} processes"
    )
    return failed > 0


def _verdicts(options: argparse.Namespace, until: float) -> Iterator[Verdict]:
    spawn = multiprocessing.get_context("spawn")
    seeds = itertools.count(options.from_seed)
    with ProcessPoolExecutor(options.jobs, mp_context=spawn, initializer=_prepare_worker) as pool:
        running = {pool.submit(run_named, _scenario(options, next(seeds))) for _ in range(options.jobs)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                if time.monotonic() < until:
                    running.add(pool.submit(run_named, _scenario(options, next(seeds))))
                yield future.result()


def run_named(scenario: Scenario) -> Verdict:
    """Return the verdict of `run`. If the simulation itself fails, raise RuntimeError that names the seed."""
    try:
        return run(scenario)
    except Exception as error:
        raise RuntimeError(f"the simulation of seed {scenario.seed} broke off") from error
    finally:
        gc.collect()  # a run leaves megabytes of cycles, as the collector is off while it runs


def _prepare_worker() -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _expect_killed_coroutines()
    gc.freeze()  # imported modules stay: collections need not visit them


def _end_with_parent() -> None:
    """End this process when its parent ends: a pool's workers wait for ever if a signal kills the parent."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _expect_killed_coroutines() -> None:
    """Silence Python's reports about the coroutines of killed processes.

    Such a coroutine never started or never ended, and Python warns, raises or logs when it frees the coroutine.
    """
    logging.getLogger("sparklog").addHandler(logging.NullHandler())
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    tell = sys.unraisablehook

    def tell_others(unraisable: sys.UnraisableHookArgs) -> None:
        if not isinstance(unraisable.object, Coroutine):
            tell(unraisable)

    sys.unraisablehook = tell_others


def shrink(scenario: Scenario) -> Scenario:
    """Return the failing scenario with a shorter plan. Faults without which it still fails are removed one by one."""
    plan: Plan = scenario.plan
    for fault in reversed(scenario.plan):
        shorter = tuple(each for each in plan if each is not fault)
        if run(dataclasses.replace(scenario, plan=shorter)).anomalies:
            plan = shorter
    return dataclasses.replace(scenario, plan=plan)


def describe(verdict: Verdict, flags: str = "") -> str:
    """Return a report of the run; after a failure, also its faults and events and the command that repeats it.

    flags: options of this command besides the seed and the duration
    """
    scenario = verdict.scenario
    lines = [
        f"seed {scenario.seed}: {len(verdict.anomalies) or 'no'} anomalies, digest {verdict.digest}, "
        f"{verdict.steps} steps, {verdict.virtual_s:.1f} s of virtual time, "
        f"{verdict.acknowledged} of {verdict.sends} batches acknowledged"
    ]
    if verdict.anomalies:
        lines += [f"  {anomaly}" for anomaly in verdict.anomalies[:SHOWN_ANOMALIES]]
        lines += ["  faults:", *(f"    {fault}" for fault in scenario.plan)]
        lines += ["  events:", *(f"    {line}" for line in verdict.events)]
        lines += ["  at the end:", *(f"    {line}" for line in verdict.last)]
        command = f"python -m sparklog.testing.sim --seed {scenario.seed} --lasts {scenario.lasts_s:g}{flags}"
        lines.append(f"  again: {command} --shrink")
    return "\n".join(lines)

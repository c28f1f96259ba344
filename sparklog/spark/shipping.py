"""Pickles of objects that the driver sends to tasks. An executor that lacks a package says so in one sentence.

Spark pickles readers, writers and functions by the names of their modules. On an executor without one of these modules
a task fails in the middle of a pickle, and its error names neither the machine nor the remedy. Here the pickle is the
argument of a loader function. Spark sends the loader with its code, so the loader needs nothing but Python.

Driver and executor must have the same version of sparklog: another version may misread a pickle.

    TaskObject             base class of the source, its readers and writers
    task_function          a function of an RDD or of mapInArrow
    missing_module_text    the sentence about a module that a task needs later
    error_text             the text of an error; of a task's error, what its Python raised
"""

from __future__ import annotations

import functools
import gc
import socket
import sys
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from pyspark import cloudpickle
from pyspark.errors import PythonException

from sparklog import __version__

ADVICE = (
    f"executors need sparklog {__version__} and its packages, as the driver has them: install them there, or ship an "
    "environment with spark.archives"
)
SENTENCE = f"the Python on {{host}} ({{python}}) {{what}}; {ADVICE}"
Argument = TypeVar("Argument")
Result = TypeVar("Result")


def _loader() -> Callable[[bytes, str, str], Any]:
    # A function within a function is pickled with its code. It may use nothing of this module.
    def load(pickled: bytes, version: str, sentence: str) -> Any:
        import pickle
        import socket
        import sys

        try:
            import sparklog

            if sparklog.__version__ == version:
                loaded = pickle.loads(pickled)
                from sparklog.spark.shipping import freeze_modules

                freeze_modules()
                return loaded
            what = f"has sparklog {sparklog.__version__}"
        except ModuleNotFoundError as missing:
            what = f"has no {missing.name}"
        raise ImportError(sentence.format(host=socket.gethostname(), python=sys.executable, what=what))

    return load


_load = _loader()


def freeze_modules() -> None:
    """Take the objects of loaded modules out of garbage collection, if any was loaded since the last call.

    Spark's workers collect garbage after each task. With numba, pyarrow and others that takes tens of milliseconds.
    """
    _freeze(len(sys.modules))


@functools.cache
def _freeze(_: int) -> None:
    gc.freeze()


class TaskObject:
    """An object that tasks get. On a machine that cannot load it, unpickling raises ImportError with the sentence."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _load, (cloudpickle.dumps(_PlainPickle(self)), __version__, SENTENCE)


class _PlainPickle:
    """Pickles a TaskObject as Python would: its class, and the state that `__getstate__` returns."""

    def __init__(self, what: TaskObject) -> None:
        self._what = what

    def __reduce__(self) -> tuple[Any, ...]:
        return _new, (type(self._what),), self._what.__getstate__()


def _new(kind: type[TaskObject]) -> TaskObject:
    return kind.__new__(kind)


class _TaskFunction(TaskObject, Generic[Argument, Result]):
    def __init__(self, function: Callable[[Argument], Result]) -> None:
        self._function = function

    def __call__(self, given: Argument) -> Result:
        return self._function(given)


def task_function(function: Callable[[Argument], Result]) -> Callable[[Argument], Result]:
    """Return a function that does the same in a task. Unpickling it raises as that of a `TaskObject`."""
    return _TaskFunction(function)


def missing_module_text(missing: ModuleNotFoundError) -> str:
    """Return the sentence about a module that this machine does not have."""
    return SENTENCE.format(host=socket.gethostname(), python=sys.executable, what=f"has no {missing.name}")


def error_text(error: BaseException) -> str:
    """Return an error's text, or its type if it has none.

    For a task that failed in Python, this is the text without the traceback; for an error of the JVM, the exception.
    """
    lines = str(error).splitlines() or [type(error).__name__]
    if type(error).__name__ == "Py4JJavaError":  # by name: a worker need not have Py4J
        lines = [line.removeprefix(": ") for line in lines[1:]] or lines  # the first says which call it was
    if isinstance(error, PythonException):
        frames = [number for number, line in enumerate(lines) if line.startswith("  ")]
        lines = (lines[frames[-1] + 1 :] if frames else lines) or lines
    if lines[0].startswith("ModuleNotFoundError: "):  # Spark's own code in the task needs the module
        lines[0] += f"; {ADVICE}"
    return "\n".join(lines)

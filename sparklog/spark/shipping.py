"""What tasks get from the driver, pickled so that an executor that lacks something says so in one sentence.

Spark pickles readers, writers and functions by the names of their modules. On an executor without one of these modules
a task fails in the middle of a pickle, and its error says neither which machine that is nor what to do. Here the pickle
is an argument of a function that goes along with its code, needs nothing but Python, and opens it.

Versions must be equal: a pickle of one version may be read as something else by another.

    Shipped     base class of the source, its readers and writers, which all get into tasks
    shipped     a function of an RDD or of mapInArrow
    lacking     the sentence, for a module that a task misses later
    text_of     what an error says: of a task, what its Python said
"""

from __future__ import annotations

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
Given = TypeVar("Given")
Made = TypeVar("Made")


def _loader() -> Callable[[bytes, str, str], Any]:
    # A function within a function is pickled with its code. It may use nothing of this module.
    def load(pickled: bytes, version: str, sentence: str) -> Any:
        import pickle
        import socket
        import sys

        try:
            import sparklog

            if sparklog.__version__ == version:
                return pickle.loads(pickled)
            what = f"has sparklog {sparklog.__version__}"
        except ModuleNotFoundError as missing:
            what = f"has no {missing.name}"
        raise ImportError(sentence.format(host=socket.gethostname(), python=sys.executable, what=what))

    return load


_load = _loader()


class Shipped:
    """An object that tasks get. Loading it raises ImportError, with the sentence, where it cannot be loaded."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _load, (cloudpickle.dumps(_Opened(self)), __version__, SENTENCE)


class _Opened:
    """Pickles a Shipped object as Python would: its class, and the state that `__getstate__` returns."""

    def __init__(self, what: Shipped) -> None:
        self._what = what

    def __reduce__(self) -> tuple[Any, ...]:
        return _new, (type(self._what),), self._what.__getstate__()


def _new(kind: type[Shipped]) -> Shipped:
    return kind.__new__(kind)


class _Function(Shipped, Generic[Given, Made]):
    def __init__(self, function: Callable[[Given], Made]) -> None:
        self._function = function

    def __call__(self, given: Given) -> Made:
        return self._function(given)


def shipped(function: Callable[[Given], Made]) -> Callable[[Given], Made]:
    """Return a function that does the same in a task. Loading it raises as that of a `Shipped`."""
    return _Function(function)


def lacking(missing: ModuleNotFoundError) -> str:
    """Return the sentence over a module that this machine does not have."""
    return SENTENCE.format(host=socket.gethostname(), python=sys.executable, what=f"has no {missing.name}")


def text_of(error: BaseException) -> str:
    """Return an error's text, or its type if it has none.

    Of a task that failed in Python it is the text without the traceback, of the JVM it is the exception.
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

"""Common parts of the compiled loops over records: compilation, caching, and access to bytes.

Exceptions are too slow in compiled code, and it has no bounds checks. So all kernels follow these rules: a number read
from bytes is checked before its use as a position or length, every write is checked against the target's size, and a
negative result names the fault. Arrays that are only read are passed read-only and integers are int64, so that each
kernel is compiled for one signature.

A kernel is compiled at its first call (seconds), and the machine code is cached for later processes (milliseconds):
beside this file if that folder is writable, else in numba's cache folder of the user (NUMBA_CACHE_DIR chooses another),
else in a private folder under the temporary directory, else nowhere. Files there appear by rename, so any number of
processes may compile and load at once; at worst several do the same work. `arrow.warm_up()` compiles ahead of time.

numba unpickles a cache index before it compares the time of the source. So after renaming a named tuple that a kernel
takes, rename the kernel too: an old index under the same name would fail to load.
"""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.cpu import CPUTargetOptions
from numba.extending import intrinsic
from numba.np import arrayobj

log = logging.getLogger(__name__)

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1

# Kernels allocate nothing. If numba still counts references to arrays, each array argument of a helper costs an
# atomic operation or two, which halves the speed. A release of numba without this option is slower by that, and
# nothing else changes.
_OPTIONS: dict[str, Any] = {"nogil": True} | ({"_nrt": False} if hasattr(CPUTargetOptions, "_nrt") else {})


class StringColumn(NamedTuple):
    """A column of byte strings."""

    starts: Any  # int32, read-only: start of each in the data
    sizes: Any  # int32: size in bytes, -1: null
    data: Any  # uint8, read-only


def helper(function: Callable[..., Any]) -> Any:
    """Return `function` compiled into the kernels that call it."""
    return njit(forceinline=True, **_OPTIONS)(function)


def kernel(function: Callable[..., Any]) -> Any:
    """Return `function`, compiled at its first call, to run without the GIL; the machine code is cached if possible."""
    try:
        return njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # numba found no writable folder
        folder = _private_folder()
    if folder is None:
        log.warning("no folder to keep compiled kernels in, so every process compiles them anew: set NUMBA_CACHE_DIR")
        return njit(**_OPTIONS)(function)
    chosen = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = folder
    try:
        return njit(cache=True, **_OPTIONS)(function)
    finally:
        numba.config.CACHE_DIR = chosen


def _private_folder() -> str | None:
    """Return a folder that only this user can write to (its files are executed), or None."""
    folder = os.path.join(tempfile.gettempdir(), f"sparklog-kernels-{os.getuid()}")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        status = os.lstat(folder)
    except OSError:
        return None
    private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
    return folder if private and os.access(folder, os.W_OK) else None


@intrinsic  # type: ignore[untyped-decorator]
def byte_at(context: Any, array: Any, position: Any) -> Any:
    """Return array[position], of bytes, without numba's wrap-around of negative positions; no bounds check."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = arrayobj.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.zext(builder.load(builder.gep(data, [arguments[1]])), context.get_value_type(types.int64))

    return types.int64(array, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def copy_bytes(context: Any, target: Any, target_at: Any, source: Any, source_at: Any, size: Any) -> Any:
    """Copy bytes between arrays with memcpy; no bounds check of either range."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target_data = arrayobj.make_array(signature.args[0])(context, builder, arguments[0]).data
        source_data = arrayobj.make_array(signature.args[2])(context, builder, arguments[2]).data
        cgutils.raw_memcpy(
            builder,
            builder.gep(target_data, [arguments[1]]),
            builder.gep(source_data, [arguments[3]]),
            arguments[4],
            itemsize=1,
        )
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def word_at(context: Any, array: Any, position: Any) -> Any:
    """Return the 8 bytes at `position` as a little-endian number; no bounds check."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = arrayobj.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(64).as_pointer())
        return builder.load(place, align=1)

    return types.uint64(array, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def float_at(context: Any, array: Any, position: Any) -> Any:
    """Return the 4 bytes at `position` as a little-endian float32; no bounds check."""
    return types.float32(array, types.int64), _load_unaligned


@intrinsic  # type: ignore[untyped-decorator]
def double_at(context: Any, array: Any, position: Any) -> Any:
    """Return the 8 bytes at `position` as a little-endian float64; no bounds check."""
    return types.float64(array, types.int64), _load_unaligned


def _load_unaligned(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    data = arrayobj.make_array(signature.args[0])(context, builder, arguments[0]).data
    of = context.get_value_type(signature.return_type)
    return builder.load(builder.bitcast(builder.gep(data, [arguments[1]]), of.as_pointer()), align=1)


@intrinsic  # type: ignore[untyped-decorator]
def store_at(context: Any, array: Any, position: Any, number: Any) -> Any:
    """Write a number to the bytes at `position`, as many as its type has, little-endian; no bounds check."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = arrayobj.make_array(signature.args[0])(context, builder, arguments[0]).data
        of = context.get_value_type(signature.args[2])
        place = builder.bitcast(builder.gep(data, [arguments[1]]), of.as_pointer())
        builder.store(arguments[2], place, align=1)
        return context.get_dummy_value()

    return types.void(array, types.int64, number), generate


@intrinsic  # type: ignore[untyped-decorator]
def item_at(context: Any, array: Any, index: Any) -> Any:
    """Return array[index], of int64, without numba's wrap-around of negative indices; no bounds check."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = arrayobj.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.load(builder.gep(data, [arguments[1]]))

    return types.int64(array, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def fetch_ahead(context: Any, array: Any, index: Any) -> Any:
    """Prefetch array[index] into the processor's caches."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = arrayobj.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(prefetch, [place, number(1), number(3), number(1)])  # to write, to all caches, data
        return context.get_dummy_value()

    return types.void(array, types.int64), generate

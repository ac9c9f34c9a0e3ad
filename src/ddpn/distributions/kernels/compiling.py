"""Compile kernels with numba on their first use, and keep the compiled code on disk.

A kernel is a plain Python function without a decorator. So its module need not import numba, which takes half a second,
and a test can call the kernel without compiling it. Before a kernel is compiled, every function that it calls is
registered with `numba.extending.overload`. numba's own disk cache notices only changes in the file of the kernel
itself. So the file name in the cache contains a hash of all functions that the kernel calls, and of their constants.
"""

import hashlib
import inspect
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from ddpn.distributions.kernels import family as families
from ddpn.distributions.kernels.arrays import REORDERABLE
from ddpn.distributions.kernels.family import Family

if TYPE_CHECKING:
    from numba.core.event import TimingListener

#: Division by zero gives infinity, and fused multiply-add, which rounds once, is allowed.
_OPTIONS: Any = {"error_model": "numpy", "fastmath": {"contract"}}
_REORDERABLE_OPTIONS: Any = {**_OPTIONS, "fastmath": {"contract", "reassoc", "nsz"}}
#: Functions that depend only on the type of the family, so that their results are constants in compiled code.
_FLAGS = families.has_ratio, families.has_fast_log_weight
#: The sentences about compilation that this process has printed. If it contains `ANNOUNCEMENT`, as in a process that
#: compiles the kernels of ddpn in advance, this sentence is not printed again.
announced: set[str] = set()
ANNOUNCEMENT = "Compiling numerical kernels, once per installation ..."
#: Measures how long numba compiles in this process. Empty until the first kernel is requested, which imports numba.
_compile_timers: "list[TimingListener]" = []


@cache
def compile_kernel(function: FunctionType, family: type[Family] | None = None) -> Callable[..., Any]:
    """Return a compiled version of a kernel, which releases the GIL while it runs.

    The kernel is compiled when the result is first called, or loaded from disk if an earlier process has compiled it.
    Arrays that are passed to it should be writable and C-contiguous, because numba compiles a kernel again for every
    other kind of array.

    Parameters
    ----------
    function : function
        A plain function that numba can compile. If `family` is passed, it is the function's first argument, and callers
        of the result leave it out.
    family : type, optional
        A class of distributions, see `kernels.family.Family`. Kernels of a family that is defined in `__main__` are not
        kept on disk.
    """
    import numba

    _time_compiling()
    if family is None:

        def loop(*args):
            return function(*args)

    else:
        _check_methods(family)

        def loop(*args):
            return function(family, *args)

    _register_methods()
    functions = list(_find_functions(function, family))
    for called in functions:
        _register_function(called)
    # The name of the file on disk and of the symbols in it, which must differ between families.
    label = function.__name__ if family is None else f"{function.__name__}_{family.__name__}"
    loop.__qualname__ = f"{label}_{_hash_functions(functions, family)}"
    is_kept = family is None or family.__module__ != "__main__"
    dispatcher = numba.njit(cache=is_kept, nogil=True, **_OPTIONS)(loop)
    _announce(dispatcher, family)
    return dispatcher


def _check_methods(family: type[Family]) -> None:
    """Raise a `TypeError` if a family lacks a method of `Family`, because numba's own message would not name it."""
    missing = [name for name in families.REQUIRED_METHODS if not callable(getattr(family, name, None))]
    if missing:
        what = f"family {family.__name__} must have the methods {', '.join(families.REQUIRED_METHODS)}"
        raise TypeError(
            f"The {what}, but it lacks {', '.join(missing)}. See `ddpn.distributions.kernels.family.Family`."
        )


def read_clock_without_compiling() -> float:
    """Return the time of a clock, in seconds, that stands still while this process compiles kernels.

    Kernels are compiled once per installation, by whatever needs them first. Differences between two times of this
    clock say how long a computation takes once they are compiled.
    """
    return time.perf_counter() - sum(timer.duration for timer in _compile_timers if timer.done)


def _time_compiling() -> None:
    """Start to measure how long numba compiles in this process, unless that is being measured already."""
    if not _compile_timers:
        from numba.core import event

        _compile_timers.append(event.TimingListener())
        event.register("numba:compile", _compile_timers[0])


def _find_functions(function: FunctionType, family: type[Family] | None) -> Iterator[FunctionType]:
    """Yield `function`, the methods of `family`, and every function that these call, directly or indirectly.

    If one of these functions uses a named tuple class, the methods of that class are included.
    """
    waiting, seen = [function, *([] if family is None else _list_methods(family))], set()
    while waiting:
        caller = waiting.pop()
        if caller in seen:
            continue
        seen.add(caller)
        yield caller
        for name in caller.__code__.co_names:
            value = caller.__globals__.get(name)
            if isinstance(value, FunctionType) and not value.__module__.startswith("numba"):
                waiting.append(value)
            elif isinstance(value, type) and issubclass(value, tuple):
                waiting += _list_methods(value)


def _list_methods(family: type) -> list[FunctionType]:
    """Return the public methods of a family, including inherited ones."""
    kinds = [kind for kind in family.__mro__ if kind not in (tuple, object)]
    public = [getattr(x, "__func__", x) for kind in kinds for name, x in vars(kind).items() if not name.startswith("_")]
    return [x for x in public if isinstance(x, FunctionType)]


def _hash_functions(functions: list[FunctionType], family: type[Family] | None) -> str:
    """Return a hash of the bytecode of functions, the global constants that they use, and the fields of the family."""
    fields = None if family is None else (family.__module__, family.__qualname__, getattr(family, "_fields", ()))
    digest = hashlib.sha256(repr(fields).encode())
    for function in sorted(functions, key=lambda x: (x.__module__, x.__qualname__)):
        digest.update(repr((function.__module__, function.__qualname__, _list_code(function.__code__))).encode())
        for name in function.__code__.co_names:
            value = function.__globals__.get(name)
            if isinstance(value, np.ndarray):
                digest.update(value.tobytes())
            elif isinstance(value, bool | int | float | str | tuple):
                digest.update(repr((name, value)).encode())
            elif isinstance(value, type) and issubclass(value, tuple):
                digest.update(repr((name, getattr(value, "_fields", ()))).encode())
    return digest.hexdigest()[:16]


def _list_code(code: CodeType) -> tuple[bytes, tuple[str, ...], tuple[object, ...]]:
    constants = tuple(_list_code(x) if isinstance(x, CodeType) else repr(x) for x in code.co_consts)
    return code.co_code, code.co_names, constants


@cache
def _register_function(function: FunctionType) -> None:
    """Register a function with numba, so that compiled code can call it.

    The results of `has_ratio` and `has_fast_log_weight` depend only on the family. They become constants in compiled
    code.
    """
    from numba.extending import overload

    def choose(*args):
        kind: Any = getattr(args[0], "instance_class", None) if args else None
        if function is families.prepare:
            return kind.prepare.__func__
        if function in _FLAGS:
            return (lambda p: True) if function(kind) else (lambda p: False)
        return function

    options = _REORDERABLE_OPTIONS if function in REORDERABLE else _OPTIONS
    overload(function, jit_options=options, strict=False)(choose)


@cache
def _register_methods() -> None:
    """Register the methods of families with numba, so that compiled code can call them.

    For a call such as `p.ratio(y)`, numba takes the method of the class of `p`. If the class has no such method, numba
    takes the default in `OptionalMethods`.
    """
    from numba import types
    from numba.extending import overload_method

    options: Any = {"jit_options": _OPTIONS, "strict": False}
    for name, default in (vars(families.Family) | vars(families.OptionalMethods)).items():
        if isinstance(default, FunctionType) and not name.startswith("_"):

            def choose(p, *args, _name=name, _default=default):
                return getattr(p.instance_class, _name, _default)

            choose.__signature__ = inspect.signature(default)  # type: ignore[attr-defined]
            overload_method(types.BaseNamedTuple, name, **options)(choose)


def _announce(dispatcher: Any, family: type[Family] | None) -> None:
    """Print to stderr that kernels are being compiled.

    A process prints this once for all families of ddpn together, and once for each family that a user has defined.
    `family` is the family of `dispatcher`, a numba dispatcher, or None if its kernel has no family. Nothing is printed
    if the kernel is on disk already.
    """
    path = Path(dispatcher.stats.cache_path) if dispatcher.stats.cache_path else None
    sentence = ANNOUNCEMENT
    if family is not None and family.__module__.partition(".")[0] != "ddpn":
        how_often = "in every process" if path is None else "once per version of this family"
        sentence = f"Compiling numerical kernels of {family.__name__}, {how_often} ..."
    if sentence not in announced and (path is None or not any(path.glob(f"*{dispatcher.py_func.__qualname__}*"))):
        announced.add(sentence)
        print(sentence, file=sys.stderr, flush=True)

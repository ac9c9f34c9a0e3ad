"""Compile plain Python functions by numba when they are first needed, and keep the result on disk.

Kernels are ordinary functions in this package, without decorators: they import no numba, and a test can call them as
they are. `compiled` translates one of them with everything that it calls. A family binds its own `log_mass`, `score`
and so on to the names that the kernels use, and so gets loops of its own.
"""

import hashlib
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

from ddpn.distributions.kernels import arrays

Bindings = Mapping[str, Any]
_HERE = Path(__file__).parent
#: Division by zero is infinite, and a product that is added to may be rounded once instead of twice.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}}
_ANY_ORDER = {"contract", "reassoc", "nsz"}
#: Options of functions that only compiled code calls: they need no wrappers for Python and C.
_INNER: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


@cache
def _sources() -> bytes:
    """The text of all kernels, which names the files of the cache: numba itself sees changes of one file only."""
    return b"".join(path.read_bytes() for path in sorted(_HERE.glob("*.py")))


def _digest(function: FunctionType, bindings: Bindings) -> str:
    found = hashlib.sha256(_sources())
    if not function.__module__.startswith(__package__):  # whose text is not among the sources
        found.update(repr(_code(function)).encode())
    for name, value in sorted(bindings.items()):
        is_ours = isinstance(value, FunctionType) and not value.__module__.startswith("numba")
        found.update(repr((name, _code(value) if is_ours else str(type(value)))).encode())
    return found.hexdigest()[:16]


def _code(function: FunctionType, seen: tuple[FunctionType, ...] = ()) -> tuple[Any, ...]:
    """What a function computes: its own code and that of the functions that it calls, wherever they are defined."""
    code, known = function.__code__, function.__globals__
    called = [known[name] for name in code.co_names if isinstance(known.get(name), FunctionType)]
    others = (_code(each, (*seen, function)) for each in called if each not in seen and each is not function)
    return code.co_code, repr(code.co_consts), code.co_names, *others


#: Compiled functions by what they were made of: kernels and families share those that they call.
_INNERS: dict[tuple[FunctionType, str], Any] = {}


def _is_bound(function: FunctionType, bindings: Bindings) -> bool:
    """Whether a function, or one that it calls, uses the bindings."""
    called = (function.__globals__.get(name) for name in function.__code__.co_names)
    own = [each for each in called if isinstance(each, FunctionType) and not each.__module__.startswith("numba")]
    return any(name in bindings for name in function.__code__.co_names) or any(_is_bound(f, bindings) for f in own)


def _translated(function: FunctionType, bindings: Bindings, digest: str) -> FunctionType:
    """A copy of a function whose globals are the bindings, and compiled functions in the place of plain ones."""
    import numba

    names = {}
    for name in function.__code__.co_names:
        value = bindings.get(name, function.__globals__.get(name))
        if isinstance(value, FunctionType) and not value.__module__.startswith("numba"):
            # Those of other modules may read globals, which may have changed since.
            is_ours = value.__module__.startswith(__package__)
            is_shared = is_ours and name not in bindings and not _is_bound(value, bindings)
            own = _digest(value, {}) if is_shared else digest
            if (value, own) not in _INNERS:
                options = {**_INNER, "fastmath": _ANY_ORDER if value in arrays.ANY_ORDER else _OPTIONS["fastmath"]}
                _INNERS[value, own] = numba.njit(**options)(_translated(value, bindings, own))
            value = _INNERS[value, own]
        if value is not None:
            names[name] = value
    names["__builtins__"] = __builtins__
    made = FunctionType(function.__code__, names, function.__name__, function.__defaults__)
    # Symbols of machine code carry this name. Families that were compiled in different processes could otherwise have
    # the same symbol for functions such as `log_mass`, and one would run the code of the other.
    made.__qualname__ = f"{function.__module__.replace('.', '_')}_{function.__name__}_{digest}"
    return made


def _prepared(function: FunctionType, bindings: Bindings, label: str) -> FunctionType:
    digest = _digest(function, bindings)
    made = _translated(function, bindings, digest)
    made.__module__ = function.__module__
    made.__qualname__ = f"{function.__name__}_{label}_{digest}"
    _announce(made)
    return made


def compiled(function: Any, signature: str, **bindings: Any) -> Callable[..., Any]:
    """A kernel for arrays, which releases the GIL.

    Parameters
    ----------
    function : function
        A plain function that numba can translate.
    signature : str
        The types of its arguments, as numba writes them.
    **bindings
        What names in the function and in those that it calls stand for, instead of their globals.
    """
    import numba

    made = _prepared(function, {**_by_address(), **bindings}, "rows")
    return numba.njit(signature, cache=True, nogil=True, **_OPTIONS)(made)


def compiled_entry(function: Any, label: str, **bindings: Any) -> int:
    """The address of an entry: a function (operation, inputs, results, length) -> length.

    Parameters
    ----------
    function : function
        A plain function of an integer, two addresses of float64 arrays and a length.
    label : str
        The name of the family, for the files of the cache.
    **bindings
        As in `compiled`.
    """
    from numba import cfunc, types

    real = types.CPointer(types.float64)
    made = _prepared(function, bindings, label)
    found: Any = cfunc(types.int64(types.int64, real, real, types.int64), cache=True, **_OPTIONS)(made)
    _KEPT.append(found)
    return found.address


@cache
def _by_address() -> dict[str, Any]:
    """Functions of compiled code: `call`, an entry with arrays given by their addresses, and `reals`, n numbers there.

    Arrays that `reals` returns own nothing. Slices do, and counting the owners takes longer than a short sum. The
    numbers must be those of an argument of the kernel: numba frees a local array after its last use, and does not know
    of such views.
    """
    import numba
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    whole, real = ir.IntType(64), ir.DoubleType().as_pointer()

    @intrinsic
    def call(typing_context: Any, address: Any, operation: Any, inputs: Any, results: Any, length: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = ir.FunctionType(whole, [whole, real, real, whole])
            entry, operation, inputs, results, length = arguments
            pointers = [builder.inttoptr(each, real) for each in (inputs, results)]
            return builder.call(builder.inttoptr(entry, kind.as_pointer()), [operation, *pointers, length])

        return types.int64(*[types.int64] * 5), generate

    @intrinsic
    def pointer(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], real)

        return types.CPointer(types.float64)(types.int64), generate

    @numba.njit(**_INNER)
    def reals(address: Any, n: Any) -> Any:
        return numba.carray(pointer(address), n)  # type: ignore[call-arg]

    return {"call": call, "reals": reals}


#: Compiled entries, which must live as long as their addresses are used.
_KEPT: list[Any] = []
announced: list[bool] = []


def _announce(function: FunctionType) -> None:
    """Print once per process that kernels are compiled, where they are not on disk yet."""
    from numba.core.caching import FunctionCache

    if announced:
        return
    index = Path(FunctionCache(function).cache_path)
    if not any(index.glob(f"*{function.__qualname__}*")):
        announced.append(True)
        print("Compiling numerical kernels, once per installation ...", file=sys.stderr, flush=True)

"""A family of count distributions as kernels see it: five functions of numbers."""

from collections.abc import Callable
from functools import cached_property
from math import nan
from typing import Any

from ddpn.distributions.kernels import compiling, loops


class Family:
    """Functions that say what a family is. numba translates them, so they use numbers, tuples and `math` only.

    Parameters
    ----------
    name : str
        For the files of compiled kernels.
    log_mass : function (y, p) -> float
        log of the weight of a count y, smooth in real y >= 16; p is what `prepared` returns.
    score : function (y, p) -> (float, float, float)
        Derivatives of the log weight in the parameters, zeros for those that there are not. Terms that do not depend on
        y may be left out unless the family is `normalised`.
    shape : function (p) -> (float, float, float)
        Rough centre and standard deviation, and the end of the support.
    prepared : function (a, b, c) -> tuple, optional
        Numbers that the others need, from up to three parameters. Default: the parameters themselves.
    ratio : function (y, p) -> (float, float), optional
        Two numbers, the first over the second being the weight at y + 1 over that at y, where these are cheaper than
        an exponential.
    quick : function (y, log_y, log_h_y, p) -> float, optional
        `log_mass` for counts below 8,192 from log y and log h(y) = log(e^-y y^y / y!), which are in tables; NaN for
        parameters with which that would lose digits. It has no branches on y, so that counts are done several at once.
    normalised : bool
        Whether `log_mass` is the logarithm of a probability. Default: its sum is found by adding up.
    """

    def __init__(
        self,
        name: str,
        log_mass: Callable[..., Any],
        score: Callable[..., Any],
        shape: Callable[..., Any],
        *,
        prepared: Callable[..., Any] | None = None,
        ratio: Callable[..., Any] | None = None,
        quick: Callable[..., Any] | None = None,
        normalised: bool = False,
    ) -> None:
        self.name = name
        self._bound: dict[str, Any] = {
            "log_mass": log_mass,
            "score": score,
            "shape": shape,
            "prepared": prepared or _as_they_are,
            "NORMALISED": normalised,
            "HAS_RATIO": ratio is not None,
            "ratio": ratio or _no_ratio,
            "HAS_QUICK": quick is not None,
            "quick": quick or _not_quick,
        }

    @cached_property
    def address(self) -> int:
        """Where the compiled kernel of this family is; it is compiled, or read from disk, when first asked for."""
        import numba

        return compiling.compiled_entry(loops.entry, self.name, carray=numba.carray, **self._bound)

    def __repr__(self) -> str:
        return f"Family({self.name!r})"


def _as_they_are(a: float, b: float, c: float) -> tuple[float, float, float]:
    return a, b, c


def _no_ratio(y: float, p: tuple[float, ...]) -> tuple[float, float]:
    return 0.0, 1.0


def _not_quick(y: float, log_y: float, log_h_y: float, p: tuple[float, ...]) -> float:
    return nan

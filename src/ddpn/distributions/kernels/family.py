"""Families of count distributions: named tuples of numbers, with methods that compiled loops call.

A family is a `NamedTuple` of what its weights depend on. In compiled code `kernels.compiling` lets numba choose the
method by the type of the tuple, so that every loop is compiled for each family and nothing is looked up while it runs.
Methods are plain Python that numba can translate: numbers, tuples, `math` and functions of such.
"""

from math import inf
from typing import Protocol, Self, TypeVar


class Family(Protocol):
    """What a family must have; those of `OptionalMethods` may be missing."""

    @classmethod
    def prepare(cls, a: float, b: float, c: float) -> Self:
        """Return the tuple of a distribution with up to three parameters."""

    def is_normalised(self) -> bool:
        """Return whether `log_mass` is the logarithm of a probability. If not, its sum is found by adding up.

        It is the same for all parameters, so that `is_family_normalised` can ask for it without any.
        """

    def log_mass(self, y: float) -> float:
        """Return the log weight of a count, which must be smooth in real y >= 16."""

    def score(self, y: float) -> tuple[float, float, float]:
        """Return the derivatives of the log weight in the parameters, 0 for those that do not exist.

        Terms that do not depend on y may be left out unless the family is normalised.
        """

    def shape(self) -> tuple[float, float, float]:
        """Return a rough centre, a rough standard deviation, and the end of the support."""


Weights = TypeVar("Weights", bound=Family)


class OptionalMethods:
    """What a family may have, too; `has_ratio` and `has_quick` say where these stand for a missing method."""

    def ratio(self, y: float) -> tuple[float, float]:
        """Return two numbers whose quotient is the weight at y + 1 over that at y.

        For families in which this is cheaper than an exponential.
        """
        return inf, 1.0

    def quick(self, y: float, log_y: float, log_h: float) -> float:
        """Return `log_mass` of a count below `scalar.TABLE` from log y and log h(y), without a branch on y.

        NaN for parameters with which this would lose digits. Without branches several counts are computed at once.
        """
        return inf


def prepare(family: type[Weights], a: float, b: float, c: float) -> Weights:
    """Return the tuple of a distribution from its parameters."""
    return family.prepare(a, b, c)


def is_family_normalised(family: type[Family]) -> bool:
    """Return whether the log weights of a family are logarithms of probabilities."""
    return family.is_normalised(None)  # type: ignore[arg-type]


def has_ratio(p: Family) -> bool:
    """Return whether the family has the optional method `ratio`."""
    return hasattr(p, "ratio")


def has_quick(p: Family) -> bool:
    """Return whether the family has the optional method `quick`."""
    return hasattr(p, "quick")

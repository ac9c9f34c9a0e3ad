"""Families of count distributions: named tuples of numbers, with methods that compiled loops call.

A family is a `NamedTuple` of the numbers that its weights depend on: probabilities, or probabilities up to a factor.
Every loop is compiled once per family, and numba chooses the methods by the type of the tuple (`kernels.compiling`).
Methods are plain Python that numba can compile: numbers, tuples, `math`, and functions that use only these.
"""

from math import inf
from typing import Protocol, Self, TypeVar


class Family(Protocol):
    """The required members of a family."""

    @classmethod
    def prepare(cls, a: float, b: float, c: float) -> Self:
        """Make the tuple from three parameters of the distribution; missing parameters are 0."""

    def is_normalised(self) -> bool:
        """Return True if `log_mass` is the logarithm of a probability, for all parameters; `self` may be None."""

    def log_mass(self, y: float) -> float:
        """Return the log weight of a count, or of a real y >= 16, where the log weight must be smooth in y."""

    def score(self, y: float) -> tuple[float, float, float]:
        """Return the derivatives of the log weight in three parameters, 0 for missing parameters.

        Terms that do not depend on y may be omitted if the family is not normalised.
        """

    def shape(self) -> tuple[float, float, float]:
        """Return a rough centre, a rough standard deviation, and the end of the support."""


Weights = TypeVar("Weights", bound=Family)


class OptionalMethods:
    """Optional methods that make a family faster. These defaults only give compiled code a type."""

    def ratio(self, y: float) -> tuple[float, float]:
        """Return numerator and denominator of the weight at y + 1 divided by the weight at y.

        Define it if it is cheaper than an exponential.
        """
        return inf, 1.0

    def quick(self, y: float, log_y: float, log_h: float) -> float:
        """Return `log_mass` of a count below `scalar.TABLE_COUNTS` from log y and log h(y), without a branch on y.

        Without branches, the compiler can vectorise the loop over counts. Return NaN for parameters with which the
        formula would lose digits.
        """
        return inf


def prepare(family: type[Weights], a: float, b: float, c: float) -> Weights:
    """Make the tuple of a family from the parameters of a distribution."""
    return family.prepare(a, b, c)


def is_family_normalised(family: type[Family]) -> bool:
    """Return True if the log weights of a family are logarithms of probabilities."""
    return family.is_normalised(None)  # type: ignore[arg-type]


def has_ratio(p: Family) -> bool:
    """Return True if the family has the optional method `ratio`."""
    return hasattr(p, "ratio")


def has_quick(p: Family) -> bool:
    """Return True if the family has the optional method `quick`."""
    return hasattr(p, "quick")

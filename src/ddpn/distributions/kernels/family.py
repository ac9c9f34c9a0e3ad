"""Families of count distributions, as compiled code sees them: named tuples of numbers with methods.

A family is a `NamedTuple` class, and an instance is one distribution. Its fields are the numbers from which weights are
computed: probabilities, or probabilities up to a factor that is the same for all counts. Every kernel is compiled once
per family, and numba chooses methods by the type of the tuple (`kernels.compiling`). Methods are plain Python that
numba can compile: numbers, tuples, `math`, and functions that use only these.
"""

from math import inf
from typing import Protocol, Self, TypeVar


class Family(Protocol):
    """The methods that every family must have."""

    @classmethod
    def prepare(cls, a: float, b: float, c: float) -> Self:
        """Make the distribution with the parameters a, b and c.

        Families with fewer than three parameters ignore the last ones, which are 0.
        """

    def is_normalised(self) -> bool:
        """Return True if weights are probabilities, so that their sum is 1.

        The result must not depend on `self`, which may be None.
        """

    def log_weight(self, y: float) -> float:
        """Return the logarithm of the weight of a count y.

        Above 16, y may be any real number, because panels interpolate between counts. There, the result must be smooth
        in y.
        """

    def score(self, y: float) -> tuple[float, float, float]:
        """Return the derivatives of the log weight in the three parameters, with 0 for missing parameters.

        If the family is not normalised, terms that do not depend on y may be omitted: they cancel in normalisation.
        """

    def estimate_shape(self) -> tuple[float, float, float]:
        """Return a rough centre and a rough standard deviation of the weights, and the last possible count."""


Weights = TypeVar("Weights", bound=Family)


class OptionalMethods:
    """Methods that a family may have to be faster.

    The code that calls them is compiled for all families. These defaults, which are never called, give it a type.
    """

    def ratio(self, y: float) -> tuple[float, float]:
        """Return the numerator and the denominator of the ratio of two weights, that of y + 1 and that of y.

        Define this method if it takes less time than an exponential.
        """
        return inf, 1.0

    def fast_log_weight(self, y: float, log_y: float, log_h: float) -> float:
        """Return `log_weight(y)` of a count below `scalar.TABLE_COUNTS`, given log y and log h(y).

        It must have no branch on y, so that the compiler can vectorise a loop over counts. Return NaN for distributions
        for which the formula loses digits.
        """
        return inf


def prepare(family: type[Weights], a: float, b: float, c: float) -> Weights:
    """Make the distribution of a family that has the parameters a, b and c.

    In compiled code, `kernels.compiling` replaces this function by the class method of the family.
    """
    return family.prepare(a, b, c)


def is_family_normalised(family: type[Family]) -> bool:
    """Return True if the weights of a family are probabilities, so that no sum is needed to normalise them."""
    return family.is_normalised(None)  # type: ignore[arg-type]


def has_ratio(p: Family) -> bool:
    """Return True if the family of `p` defines the optional method `ratio`."""
    return hasattr(p, "ratio")


def has_fast_log_weight(p: Family) -> bool:
    """Return True if the family of `p` defines the optional method `fast_log_weight`."""
    return hasattr(p, "fast_log_weight")

"""The methods that compiled code needs from a family of count distributions.

A family, such as the Poisson, is a `NamedTuple` class, and an instance of it is one distribution. Its fields are the
numbers from which the weights of counts are computed. A weight is an unnormalised probability: the probability of a
count, possibly times a factor that is the same for all counts. numba compiles every kernel once per family, and chooses
methods by the type of the tuple (`kernels.compiling`). So methods must be plain Python that numba can compile: numbers,
tuples, loops, `math`, constants of the module, and functions that use only these.
"""

from math import inf
from typing import Protocol, Self, TypeVar


class Family(Protocol):
    """The methods that every family of count distributions must have; an instance is one distribution."""

    @classmethod
    def prepare(cls, a: float, b: float, c: float) -> Self:
        """Make the distribution of this family that has the parameters a, b and c.

        A family with fewer than three parameters ignores c, or b and c; 0 is passed for them.

        Parameters
        ----------
        a, b, c : float
            The parameters.
        """

    def is_normalised(self) -> bool:
        """Return True if `log_weight` returns log probabilities, which need no normalising constant.

        This is a property of the family: the result must not depend on `self`, which may be None.
        """

    def log_weight(self, y: float) -> float:
        """Return the log weight (unnormalised log probability) of a count y.

        Above 16, y may be any real number, because sums over many counts are approximated by quadrature, at positions
        between counts. There, the result must be smooth in y.

        Parameters
        ----------
        y : float
            The count.
        """

    def score(self, y: float) -> tuple[float, float, float]:
        """Return the derivatives of `log_weight(y)` in the three parameters, 0 for parameters that do not exist.

        Like `log_weight`, it must be smooth in y above 16, also between integers.

        If the family is not normalised, a term that is the same for all y may be left out of a derivative. It cancels
        when the mean of the derivative over all counts is subtracted.

        Parameters
        ----------
        y : float
            The count.
        """

    def estimate_shape(self) -> tuple[float, float, float]:
        """Return a rough centre of the distribution, a rough standard deviation, and the largest possible count."""


#: The names of the methods of `Family`.
REQUIRED_METHODS = ("prepare", "is_normalised", "log_weight", "score", "estimate_shape")

FamilyType = TypeVar("FamilyType", bound=Family)


class OptionalMethods:
    """Methods that a family may define to make kernels faster.

    Kernels check whether a family has such a method before they call it. The defaults here are never called. They only
    tell numba the types of arguments and results, because code that calls a method is compiled for families without the
    method as well.
    """

    def ratio(self, y: float) -> tuple[float, float]:
        """Return numbers u and v such that u / v is the ratio of the probabilities of y + 1 and y.

        Define this method if it takes less time than computing an exponential.

        Parameters
        ----------
        y : float
            The smaller of the two counts.
        """
        return inf, 1.0

    def fast_log_weight(self, y: float, log_y: float, log_h: float) -> float:
        """Return `log_weight(y)` for a count y below `scalar.TABLE_COUNTS`, given log y and log h(y).

        h(y) = e^-y y^y / y!.

        The method must not branch on y, so that the compiler can vectorise a loop over counts. For parameters with
        which the formula is inaccurate, it must return NaN for every y.

        Parameters
        ----------
        y : float
            The count.
        log_y, log_h : float
            log y and log h(y).
        """
        return inf


def prepare(family: type[FamilyType], a: float, b: float, c: float) -> FamilyType:
    """Make the distribution of a family that has the parameters a, b and c.

    In compiled code, `kernels.compiling` replaces this function by the class method `prepare` of the family.
    """
    return family.prepare(a, b, c)


def is_family_normalised(family: type[Family]) -> bool:
    """Return True if the weights of a family are probabilities, so that no sum is needed to normalise them."""
    return family.is_normalised(None)  # type: ignore[arg-type]


def has_ratio(p: Family) -> bool:
    """Return True if the family of the distribution `p` defines the optional method `ratio`."""
    return hasattr(p, "ratio")


def has_fast_log_weight(p: Family) -> bool:
    """Return True if the family of the distribution `p` defines the optional method `fast_log_weight`."""
    return hasattr(p, "fast_log_weight")

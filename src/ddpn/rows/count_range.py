"""`CountRange`: the possible counts, and the limit above which counts are censored."""

from dataclasses import asdict, dataclass

import numpy as np

from ddpn.rows.checks import Labels, check_all, check_vector
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import Argument, ConfigError, InputError
from ddpn.runtime.validation import check_integer, is_integer
from ddpn.storage.contents import JsonObject


@dataclass(frozen=True)
class CountRange:
    """The range of possible counts, and the limit above which counts are right-censored.

    Parameters
    ----------
    lower : int
        The smallest possible count. Default: 0.
    upper : int, optional
        The largest possible count in every row. Default: unbounded.
    censored_above : int, optional
        The recording limit: larger counts are recorded as this number ("10 or more").
    upper_per_row : bool
        True if each row has its own largest possible count, which is then needed for predictions as well.
    upper_is_total : bool
        True if the largest possible count is the total n of "k of n", as for the Double Binomial. Members then take the
        total as the exposure.

    Examples
    --------
    >>> CountRange(lower=1, upper=5)
    CountRange(lower=1, upper=5, censored_above=None, upper_per_row=False, upper_is_total=False)
    """

    lower: int = 0
    upper: int | None = None
    censored_above: int | None = None
    upper_per_row: bool = False
    upper_is_total: bool = False

    def __post_init__(self) -> None:
        if self.lower is None:
            raise ConfigError(
                argument="lower", must="be an integer of at least 0", got="None", remedy="The default is 0."
            )
        check_integer("lower", self.lower, 0)
        for name in ("upper", "censored_above"):
            value = getattr(self, name)
            if value is not None and not (is_integer(value) and value > self.lower):
                must = f"be an integer above `lower={self.lower}`"
                raise ConfigError(argument=name, must=must, got=repr(value))
        if self.upper is not None and self.upper_per_row:
            raise ConfigError(argument="upper", must="be one number for all rows or one per row", got="both")
        if self.upper is not None and self.censored_above is not None and self.censored_above > self.upper:
            must = f"be at most `upper={self.upper}`"
            raise ConfigError(argument="censored_above", must=must, got=str(self.censored_above))

    @property
    def is_unrestricted(self) -> bool:
        """True if every count is possible and recorded exactly."""
        return self == CountRange()

    @property
    def is_bounded(self) -> bool:
        """True if there is an upper bound, or a lower bound above 0."""
        return self.lower > 0 or self.upper is not None or self.upper_per_row

    @property
    def options(self) -> dict[str, int]:
        """The arguments `lower`, `upper` and `censored_above` of an estimator that differ from their defaults."""
        limits = {"lower": self.lower or None, "upper": self.upper, "censored_above": self.censored_above}
        return {name: limit for name, limit in limits.items() if limit is not None}

    def bounds(
        self, n: int, upper: object = None, labels: Labels = None
    ) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return the smallest and the largest possible count of each of `n` rows, as two arrays of shape (n,).

        An array is None if there is no such bound.

        Parameters
        ----------
        n : int
            The number of rows.
        upper : array-like, optional
            The user's upper bound of each row. It is required if `upper_per_row` is True, and must be None otherwise.
        labels : sequence, optional
            How errors name the rows. Default: by position.
        """
        lower = np.full(n, float(self.lower)) if self.lower else None
        if upper is None:
            if self.upper_per_row:
                raise InputError("upper is missing: the model was fitted with an upper bound per row. Pass upper.")
            return lower, None if self.upper is None else np.full(n, float(self.upper))
        if not self.upper_per_row:
            reason = "must not be given: the model was fitted without an upper bound per row"
            raise InputError(reason, argument="upper")
        values = check_vector("upper", upper, n, allow_zero=True, labels=labels, allow_all_zero=True)
        assert values is not None
        smallest = max(self.lower, int(self.upper_is_total))  # a total of 0 leaves nothing to predict
        is_bound = (values == np.floor(values)) & (values >= smallest)
        check_all(is_bound, "upper", f"hold integers of at least {smallest}", values, labels)
        return lower, values

    def apply(self, rows: CountRows, name: str | Argument = "y") -> CountRows:
        """Check counts against the bounds, and return the rows with these bounds and recording limits as fields.

        Counts above `censored_above` are set to that number. `rows` may already have an upper bound or a recording
        limit per row. If the upper bound is the total of "k of n", it also becomes the exposure. A count outside the
        bounds raises an `InputError`, which calls the counts `name`.
        """
        low, high = self.bounds(len(rows), rows.upper, rows.labels)
        y, limit = rows.y, rows.limit
        check_all(y >= self.lower, name, f"be at least `lower={self.lower}`", y, rows.labels)
        if high is not None:
            bound = "the upper bound of its row" if self.upper is None else f"`upper={self.upper}`"
            check_all(y <= high, name, f"be at most {bound}", y, rows.labels)
        if self.censored_above is not None:
            y = np.minimum(y, self.censored_above)
            limit = np.minimum(np.inf if limit is None else limit, np.full(len(rows), float(self.censored_above)))
        exposure = rows.exposure
        if self.upper_is_total:
            if exposure is not None:
                raise InputError("exposure must not be given: the upper bound is the total of each row.")
            exposure = high
        return rows.replace(y=y, exposure=exposure, lower=low, upper=high, limit=limit)

    def check_not_all_censored(self, sample: CountRows) -> None:
        """Raise an `InputError` if all counts are censored, because nothing can be fitted to them."""
        if sample.limit is not None and (sample.y >= sample.limit)[sample.has_weight].all():
            must = "hold a count that is known exactly"
            raise InputError(argument="y", must=must, got="censored counts only")

    def to_arguments(self, sample: CountRows) -> dict[str, np.ndarray | None]:
        """Convert rows to the arguments `exposure`, `upper` and `censored` of an estimator.

        Arguments that are not needed are None.
        """
        flags = None
        if sample.limit is not None and (self.censored_above is None or (sample.limit < self.censored_above).any()):
            flags = sample.y >= sample.limit
        exposure = None if self.upper_is_total else sample.exposure
        return {"exposure": exposure, "upper": sample.upper if self.upper_per_row else None, "censored": flags}

    def needs_exposure(self, rows: CountRows) -> bool:
        """Return True if models that are fitted to `rows` need an exposure to predict.

        That is the case if `rows` has exposures, unless the exposures are the totals of "k of n".
        """
        return rows.exposure is not None and not self.upper_is_total

    def as_dict(self) -> JsonObject:
        """Return the fields as a dict that can be saved as JSON."""
        return asdict(self)

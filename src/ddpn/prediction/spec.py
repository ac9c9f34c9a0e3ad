"""`PredictionSpec`: what a table of predictions has. Imports no torch."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from ddpn.calibration import INTERVAL_KINDS
from ddpn.members import find_member_name
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import check_choice, check_keys

#: Columns of a table of predictions by default, in their order; of these, `ood_pvalue` needs calibrated scores.
DEFAULT_COLUMNS = (
    "mean", "median", "mode", "lower", "upper", "interval_probability", "aleatoric", "epistemic", "stddev",
    "ood_pvalue",
)  # fmt: skip
#: Columns about rows that are flagged as out-of-distribution.
FLAG_COLUMNS = ("ood", "ood_reason")
#: Outputs that only JSON can hold: the shape of each distribution, and what each member predicts.
NESTED_OUTPUTS = ("distribution", "members")
#: The largest count whose probability may be a column.
MAX_PMF = 10_000


@dataclass(frozen=True, kw_only=True)
class PredictionSpec:
    """What a table of predictions has: `Prediction.to_frame`, `ddpn predict`, the server and ONNX files take one.

    The columns are, in this order:

    mean
        The expected count, float64 like all columns that are not counts.
    median, mode
        The smallest count with at least half of the mass below or at it; the most probable count.
    lower, upper
        The narrowest (or, on request, central) interval that contains the count with a probability of at least
        `coverage`, both ends included; calibrated if the model has calibrated intervals.
    interval_probability
        The probability of the interval by the row's own distribution. As counts are integers, it is more than asked.
    aleatoric, epistemic, stddev
        The variance that remains if the members agree, the variance of their means, and the square root of their sum.
    q0.1, ...
        Quantiles, which are counts, one column per level of `quantiles`.
    p0, p1, ...
        Probabilities of the counts 0 to `pmf`.
    ood_pvalue
        The share of rows like the training rows that are at least as unusual; only of models with calibrated
        out-of-distribution scores.
    ood, ood_reason
        Whether `ood_pvalue` is at most `ood`, and the reasons as text, missing if not; only on request.

    Parameters
    ----------
    coverage : float
        The least probability of the interval, calibrated on held-out rows if there were any.
    interval_kind : {"narrowest", "central"}, optional
        The fewest consecutive counts with that probability, or the counts between two quantiles. Default:
        "narrowest", and "central" for models of censored counts.
    quantiles : sequence of float
        Levels of quantiles.
    pmf : int, optional
        The largest count whose probability is a column.
    ood : float, optional
        Adds `ood` and `ood_reason`: rows are flagged if their p-value is at most this.
    columns : sequence of str
        Names of the columns above, apart from quantiles and probabilities. Default: all up to `ood_pvalue`.
    member : str, optional
        The member that predicts instead of the mixture, where a model predicts a table.
    keep : bool
        Whether to keep the columns of the table, where a model predicts a table.
    """

    coverage: float = 0.9
    interval_kind: str | None = None
    quantiles: tuple[float, ...] = ()
    pmf: int | None = None
    ood: float | None = None
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    member: str | None = None
    keep: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "quantiles", tuple(self.quantiles))
        object.__setattr__(self, "columns", tuple(self.columns))
        check_keys(self.columns, (*DEFAULT_COLUMNS, *FLAG_COLUMNS, *NESTED_OUTPUTS), "columns")
        if self.ood is not None:
            object.__setattr__(self, "columns", tuple(dict.fromkeys((*self.columns, *FLAG_COLUMNS))))
        if not 0.0 < self.coverage < 1.0:
            raise ConfigError(argument="coverage", must="lie between 0 and 1", got=f"{self.coverage:g}")
        if self.interval_kind is not None:
            check_choice("interval_kind", self.interval_kind, INTERVAL_KINDS)
        for level in self.quantiles:
            if not 0.0 < level < 1.0:
                raise ConfigError(argument="quantiles", must="lie between 0 and 1", got=f"{level:g}")
        if self.pmf is not None and not 0 <= self.pmf <= MAX_PMF:
            raise ConfigError(argument="pmf", must=f"be a count from 0 to {MAX_PMF}", got=str(self.pmf))

    def for_model(self, members: Iterable[str], has_ood: bool) -> Self:
        """Return the spec with the model's name of the member; raise an error for what the model cannot do."""
        if self.ood is not None and not has_ood:
            reason = "this one had too few rows, was not calibrated, or was saved in Python before fit_ood"
            raise InputError(f"needs a model that was fitted with validation rows; {reason}", argument="ood")
        is_member = self.member not in (None, "mixture")
        return replace(self, member=find_member_name(str(self.member), members) if is_member else None)


def quantile_name(level: float) -> str:
    """Return the name of the column of a quantile.

    >>> quantile_name(0.1)
    'q0.1'
    """
    return f"q{level:g}"


def parse_levels(text: str) -> tuple[float, ...]:
    """Read numbers separated by commas.

    >>> parse_levels("0.1, 0.9")
    (0.1, 0.9)
    """
    try:
        return tuple(float(word) for word in text.split(",") if word.strip())
    except ValueError:
        must = "be numbers separated by commas such as 0.1,0.5,0.9"
        raise ConfigError(argument="quantiles", must=must, got=repr(text)) from None

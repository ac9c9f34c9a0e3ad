"""`PredictionSpec`: which columns a table of predictions has. This module does not import torch."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from ddpn.calibration import INTERVAL_KINDS
from ddpn.members import find_member_name
from ddpn.rows.checks import LARGEST_COUNT
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import check_choice, check_keys, is_integer

#: The default columns of a table of predictions in order. `ood_pvalue` is present only if the model has such scores.
DEFAULT_COLUMNS = (
    "mean", "median", "mode", "lower", "upper", "interval_probability", "aleatoric", "epistemic", "stddev",
    "ood_pvalue",
)  # fmt: skip
#: Columns that flag out-of-distribution rows.
FLAG_COLUMNS = ("ood", "ood_reason")
#: Outputs that only JSON can hold: the shape of each distribution, and the predictions of each member.
NESTED_OUTPUTS = ("distribution", "members")
#: The largest allowed value of `pmf`.
MAX_PMF = 10_000


@dataclass(frozen=True, kw_only=True)
class PredictionSpec:
    """The columns of a prediction table, as `Prediction.to_frame`, `ddpn predict`, the server and ONNX files return it.

    The columns are, in this order:

    mean
        The expected count. Like all columns that do not hold counts, it is float64.
    median, mode
        The smallest count whose cumulative probability is at least one half, and the most probable count.
    lower, upper
        The narrowest (on request, the central) interval that contains the count with a probability of at least
        `coverage`, both ends included. It is calibrated if the model is.
    interval_probability
        The probability of the interval by the row's own distribution. It exceeds `coverage`, because counts are
        integers.
    aleatoric, epistemic, stddev
        The mean of the components' variances, the variance of their means, and the square root of the sum of both.
    q0.1, ...
        Quantiles, one column per level of `quantiles`. They are counts.
    p0, p1, ...
        Probabilities of the counts 0 to `pmf`.
    prob_above_200, ...
        Probabilities of larger counts than each number of `prob_above`.
    ood_pvalue
        The share of calibration rows that are at least as unusual. Present only if the model has calibrated
        out-of-distribution scores.
    ood, ood_reason
        Present only on request: True if `ood_pvalue` is at most `ood`, and the reasons as text (missing for rows that
        are not flagged).

    Parameters
    ----------
    coverage : float
        The smallest probability that intervals may have, calibrated on held-out rows if there were any.
    interval_kind : {"narrowest", "central"}, optional
        The shortest range of counts with that probability, or the range between two quantiles. Default:
        "narrowest", but "central" for models of censored counts.
    quantiles : sequence of float
        Levels of quantiles.
    pmf : int, optional
        Add a column with the probability of each count from 0 to this one.
    prob_above : sequence of int
        For each of these counts, add a column with the probability of a larger count.
    ood : float, optional
        Flag rows whose p-value is at most this, in the columns `ood` and `ood_reason`.
    columns : sequence of str
        Names of the columns above, apart from quantiles and probabilities. Default: all up to `ood_pvalue`.
    member : str, optional
        The member that predicts instead of the mixture. Used when a saved model predicts a table.
    keep : bool
        Whether to keep the columns of the input table. Used when a saved model predicts a table.
    """

    coverage: float = 0.9
    interval_kind: str | None = None
    quantiles: tuple[float, ...] = ()
    pmf: int | None = None
    prob_above: tuple[int, ...] = ()
    ood: float | None = None
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    member: str | None = None
    keep: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "quantiles", tuple(self.quantiles))
        object.__setattr__(self, "prob_above", tuple(self.prob_above))
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
        for count in self.prob_above:
            if not (is_integer(count) and 0 <= count <= LARGEST_COUNT):
                raise ConfigError(argument="prob_above", must="hold integers from 0 to 2^53", got=repr(count))

    def for_model(self, members: Iterable[str], has_ood: bool) -> Self:
        """Return the spec for a certain model, in which `member` is the registered name of one of its members.

        In the original spec, `member` may also be the label of a member in reports. `members` are the names of the
        model's members. `has_ood` says whether the model can compute out-of-distribution flags. Raise an `InputError`
        if it cannot and the spec asks for them, or if no member has the name.
        """
        if self.ood is not None and not has_ood:
            reason = "This one had too few rows, or was not calibrated: call fit_ood before you save it"
            message = f"needs a model with calibrated out-of-distribution scores. {reason}"
            raise InputError(message, argument="ood")
        is_member = self.member not in (None, "mixture")
        return replace(self, member=find_member_name(str(self.member), members) if is_member else None)


def quantile_name(level: float) -> str:
    """Return the name of the table column that holds a quantile.

    >>> quantile_name(0.1)
    'q0.1'
    """
    return f"q{level:g}"


def parse_counts(text: str) -> tuple[int, ...]:
    """Parse the command-line option for `prob_above`, counts separated by commas.

    >>> parse_counts("100, 200")
    (100, 200)
    """
    try:
        return tuple(int(word) for word in text.split(",") if word.strip())
    except ValueError:
        must = "be integers separated by commas such as 100,200"
        raise ConfigError(argument="prob_above", must=must, got=repr(text)) from None


def parse_levels(text: str) -> tuple[float, ...]:
    """Parse the command-line option for `quantiles`, levels separated by commas.

    >>> parse_levels("0.1, 0.9")
    (0.1, 0.9)
    """
    try:
        return tuple(float(word) for word in text.split(",") if word.strip())
    except ValueError:
        must = "be numbers separated by commas such as 0.1,0.5,0.9"
        raise ConfigError(argument="quantiles", must=must, got=repr(text)) from None

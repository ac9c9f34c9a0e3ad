"""What a prediction table should have. Imports no torch."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from ddpn.calibration import INTERVAL_KINDS
from ddpn.members import member_named
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import check_choice


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a table of predictions should have; `ddpn.workflow.prediction` lists its columns.

    Parameters
    ----------
    coverage : float
        The least probability of the interval, calibrated on held-out rows if there were any.
    interval_kind : {"narrowest", "central"}, optional
        The fewest consecutive counts with that probability, or the counts between two quantiles. Default:
        "narrowest", and "central" for models of censored counts.
    quantiles : tuple of float
        Levels of quantiles.
    pmf : int, optional
        The largest count whose probability is a column.
    keep : bool
        Whether to keep the columns of the table.
    pvalue : bool
        Whether to compute out-of-distribution p-values.
    ood : float, optional
        Flags rows whose p-value is at most this.
    reasons : bool
        Whether flagged rows have reasons.
    member : str, optional
        The member that predicts instead of the mixture.
    """

    coverage: float = 0.9
    interval_kind: str | None = None
    quantiles: tuple[float, ...] = ()
    pmf: int | None = None
    keep: bool = False
    pvalue: bool = True
    ood: float | None = None
    reasons: bool = True
    member: str | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.coverage < 1.0:
            raise ConfigError(argument="coverage", must="lie between 0 and 1", got=f"{self.coverage:g}")
        if self.interval_kind is not None:
            check_choice("interval_kind", self.interval_kind, INTERVAL_KINDS)
        for level in self.quantiles:
            if not 0.0 < level < 1.0:
                raise ConfigError(argument="quantiles", must="lie between 0 and 1", got=f"{level:g}")
        if self.pmf is not None and not 0 <= self.pmf <= 10_000:
            raise ConfigError(argument="pmf", must="be a count from 0 to 10000", got=str(self.pmf))

    def for_model(self, members: Iterable[str], has_ood: bool) -> Self:
        """The request with the name of the member as a model has it; raises an error for what the model cannot do."""
        if self.ood is not None and not has_ood:
            reason = "this one had too few rows, was not calibrated, or was saved in Python before fit_ood"
            raise InputError(f"needs a model that was fitted with validation rows; {reason}", argument="ood")
        is_one = self.member not in (None, "mixture")
        return replace(self, member=member_named(str(self.member), members) if is_one else None)


def quantile_name(level: float) -> str:
    """The column of a quantile.

    >>> quantile_name(0.1)
    'q0.1'
    """
    return f"q{level:g}"


def parse_levels(text: str) -> tuple[float, ...]:
    """Numbers separated by commas.

    >>> parse_levels("0.1, 0.9")
    (0.1, 0.9)
    """
    try:
        return tuple(float(word) for word in text.split(",") if word.strip())
    except ValueError:
        must = "be numbers separated by commas such as 0.1,0.5,0.9"
        raise ConfigError(argument="quantiles", must=must, got=repr(text)) from None

"""What a diagnosis found, as numbers and as sentences."""

from dataclasses import asdict, dataclass, replace
from html import escape
from typing import Any

from ddpn.runtime.display import html_table

#: Level of the interval and of all tests.
LEVEL = 0.05


def percent(share: float) -> str:
    """A share in percent, with two digits below 1%.

    >>> percent(0.273), percent(0.0012), percent(1e-9), percent(0.0)
    ('27.3%', '0.12%', '<0.01%', '0%')
    """
    if share <= 0:
        return "0%"
    if share < 1e-4:
        return "<0.01%"
    return f"{100 * share:.2g}%" if share < 0.01 else f"{100 * share:.1f}%"


def write_p(value: float) -> str:
    """A p-value as it is written in a sentence.

    >>> write_p(0.034), write_p(1e-9)
    ('p = 0.034', 'p < 0.001')
    """
    return "p < 0.001" if value < 0.001 else f"p = {value:.2g}"


@dataclass(frozen=True)
class Finding:
    """One check of a diagnosis.

    Attributes
    ----------
    name, label : str
        The name of the check, and what a finding is called, such as "zero-inflated".
    effect : str
        The size of the effect, in words.
    p_value, adjusted : float
        The p-value, by itself and after Holm's correction for all checks.
    matters : bool
        Whether the effect is large enough to report.
    sentence, clean : str
        The sentences for a finding and for none.
    is_explained : bool
        Whether another finding explains it.
    """

    name: str
    label: str
    effect: str
    p_value: float
    matters: bool
    sentence: str
    clean: str
    adjusted: float = 1.0
    is_explained: bool = False

    @property
    def found(self) -> bool:
        """Whether the effect matters and is significant."""
        return self.matters and self.adjusted < LEVEL

    @property
    def outcome(self) -> str:
        """The label of a finding, or why there is none."""
        if self.found:
            return self.label
        return "no finding" if self.adjusted >= LEVEL else "see the others" if self.is_explained else "negligible"

    @property
    def words(self) -> str:
        """The sentence that applies."""
        return self.sentence if self.found else self.clean

    def adjust(self, p_value: float) -> "Finding":
        """The same with the adjusted p-value."""
        return replace(self, adjusted=p_value)

    def explained(self) -> "Finding":
        """The same as no finding, because another finding explains it."""
        return replace(
            self, matters=False, is_explained=True, clean=f"{self.effect}, which the other findings may explain."
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "check": self.name, "found": self.found, "outcome": self.outcome,
            "effect": self.effect, "p_value": self.p_value, "adjusted_p_value": self.adjusted, "sentence": self.words,
        }  # fmt: skip


@dataclass(frozen=True)
class Dispersion:
    """Variance / mean given the features, with a 95% interval and the p-value of a Poisson.

    `direction` is "over", "under" or "equi": the latter wherever the interval contains 1.

    Attributes
    ----------
    estimate : float
        Variance / mean.
    low, high : float
        The ends of the 95% interval.
    p_value : float
        Of the hypothesis that the counts are Poisson.
    spread : float
        The standard deviation of an unknown factor of the mean that would explain the excess variance, for
        over-dispersion.
    """

    estimate: float
    low: float
    high: float
    p_value: float
    spread: float

    @property
    def direction(self) -> str:
        """The side of 1 on which the whole interval lies."""
        return "over" if self.low > 1.0 else "under" if self.high < 1.0 else "equi"


@dataclass(frozen=True)
class TargetSummary:
    """The target by itself, without the features.

    Attributes
    ----------
    rows, used : int
        Rows of the table, and those that were used.
    mean, variance : float
        Moments of the counts.
    zeros : float
        The share of zeros.
    minimum, maximum : float
        The smallest and the largest count.
    """

    rows: int
    used: int
    mean: float
    variance: float
    zeros: float
    minimum: float
    maximum: float

    @property
    def ratio(self) -> float:
        """Variance / mean."""
        return self.variance / self.mean if self.mean else float("nan")


@dataclass(frozen=True)
class Recommendation:
    """A likelihood and further options of `ddpn fit`, with the reason.

    Attributes
    ----------
    likelihood : str or None
        A name in `ddpn.networks.heads.HEADS`; None where there is nothing to recommend.
    reason : str
        Why.
    options : tuple of str
        Options of `ddpn fit`.
    """

    likelihood: str | None
    reason: str
    options: tuple[str, ...] = ()

    @property
    def arguments(self) -> str:
        """The options of `ddpn fit`."""
        return " ".join([] if self.likelihood is None else [f"--likelihood {self.likelihood}", *self.options])


@dataclass(frozen=True)
class Diagnosis:
    """What the counts of a target are like, given the features: `print` it, or use `to_dict()`.

    Attributes
    ----------
    target : str
        The name of the target.
    summary : TargetSummary
        The target by itself.
    recommendation : Recommendation
        A likelihood, and why.
    findings : tuple of Finding
        All checks.
    dispersion, mean_model : Dispersion, str
        The dispersion, and the model of the mean; None where there are too few rows or counts to say anything about
        them, and for counts with known bounds or limits.
    explained : float
        The share of the Poisson deviance that the mean model explains out of fold.
    notes : tuple of str
        Sentences about rows that were not used and checks that were not made.
    """

    target: str
    summary: TargetSummary
    recommendation: Recommendation
    findings: tuple[Finding, ...] = ()
    dispersion: Dispersion | None = None
    mean_model: str | None = None
    explained: float = 0.0
    notes: tuple[str, ...] = ()

    def finding(self, name: str) -> Finding:
        """The check of this name: "dispersion", "zeros", "ceiling", "heaping" or "tail"."""
        return next(each for each in self.findings if each.name == name)

    @property
    def labels(self) -> tuple[str, ...]:
        """Everything that was found, such as "over-dispersed" and "zero-inflated"."""
        return tuple(each.label for each in self.findings if each.found)

    @property
    def headline(self) -> str:
        """The result in one sentence."""
        if self.dispersion is None:
            return f"{self.target}: {self.notes[0]}"
        if not self.labels:
            return f"{self.target}: no finding; given the features, the counts are consistent with a Poisson."
        return f"{self.target}: {', '.join(self.labels)}, given the features."

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        summary = {**asdict(self.summary), "variance_over_mean": self.summary.ratio}
        known = self.dispersion
        return {
            "target": self.target,
            "headline": self.headline,
            "summary": {name: None if value != value else value for name, value in summary.items()},
            "mean_model": self.mean_model,
            "deviance_explained": self.explained,
            "dispersion": None if known is None else {**asdict(known), "direction": self.direction},
            "findings": [each.to_dict() for each in self.findings],
            "recommendation": {**asdict(self.recommendation), "arguments": self.recommendation.arguments},
            "notes": list(self.notes),
        }

    @property
    def direction(self) -> str | None:
        """The side of 1, "over", "under" or "equi" (consistent with a Poisson); None where it is unknown."""
        if self.dispersion is None:
            return None
        return self.dispersion.direction if self.finding("dispersion").found else "equi"

    def __str__(self) -> str:
        lines = [self.headline, *(f"- {each.words}" for each in self.findings)]
        lines += [f"Note: {note}" for note in self.notes[self.dispersion is None :]]
        return "\n".join([*lines, f"Recommendation: {self._python_advice}"])

    def _repr_html_(self) -> str:
        rows = [
            (each.name, each.outcome, each.effect, "< 0.001" if each.adjusted < 0.001 else f"{each.adjusted:.3f}")
            for each in self.findings
        ]
        checks = html_table(("check", "result", "effect", "adjusted p"), rows) if rows else ""
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes[self.dispersion is None :])
        advice = f"<p><strong>Recommendation:</strong> {escape(self._python_advice)}</p>"
        return f"<p><strong>{escape(self.headline)}</strong></p>{checks}{notes}{advice}"

    @property
    def _python_advice(self) -> str:
        """The recommended likelihood as an argument of an estimator, and the reason."""
        name, reason = self.recommendation.likelihood, self.recommendation.reason
        return reason if name is None else f'likelihood="{name}". {reason}'

    @property
    def advice(self) -> str:
        """The recommended options of the command line, and the reason."""
        arguments = self.recommendation.arguments
        return f"{arguments}. {self.recommendation.reason}" if arguments else self.recommendation.reason

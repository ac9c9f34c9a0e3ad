"""`Diagnosis`: the findings about a count target and the recommended likelihood, as text, HTML and dictionary."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from html import escape

from ddpn.analysis.diagnosis.dispersion import Dispersion
from ddpn.analysis.diagnosis.finding import Finding
from ddpn.runtime.display import TextTable
from ddpn.storage.contents import JsonObject
from ddpn.tables.row_draw import draw_to_json


@dataclass(frozen=True)
class Diagnosis:
    """Findings about a count target given its features, and a recommended likelihood. `print` shows them as text.

    Attributes
    ----------
    target : str
        The name of the target.
    summary : dict
        Statistics of the target without the features: the number of "rows" in the table and of rows "used", "mean",
        "variance", the share of "zeros", "minimum", "maximum" and "variance_over_mean" (NaN if all counts are 0).
    likelihood : str or None
        The recommended likelihood, a name in `ddpn.networks.heads.HEADS`. None if no recommendation is possible.
    reason : str
        The reason for the recommendation.
    options : dict
        Other recommended arguments by name, such as `lower`. They have the same names in the estimators and in `ddpn
        fit`.
    findings : tuple of Finding
        The results of all checks.
    dispersion : Dispersion or None
        The dispersion given the features. None if there are too few rows or counts above 0, or if counts have known
        bounds or limits.
    mean_model : str or None
        The model that predicted the means. None if `dispersion` is None.
    explained : float
        The share of the Poisson deviance that the mean model explains out of fold.
    notes : tuple of str
        Sentences about rows that were not used and checks that were skipped.
    """

    target: str
    summary: dict[str, float]
    likelihood: str | None
    reason: str
    options: Mapping[str, int | str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    dispersion: Dispersion | None = None
    mean_model: str | None = None
    explained: float = 0.0
    notes: tuple[str, ...] = ()

    def finding(self, name: str) -> Finding:
        """Return the result of one check: "dispersion", "zeros", "ceiling", "heaping" or "tail"."""
        return next(finding for finding in self.findings if finding.name == name)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all effects that were found, such as "over-dispersed" and "zero-inflated"."""
        return tuple(finding.label for finding in self.findings if finding.found)

    @property
    def headline(self) -> str:
        """A sentence that sums up all findings."""
        if self.dispersion is None:
            return f"{self.target}: {self.notes[0]}"
        if not self.labels:
            return f"{self.target}: no finding; given the features, the counts are consistent with a Poisson."
        return f"{self.target}: {', '.join(self.labels)}, given the features."

    def to_dict(self) -> JsonObject:
        """Return the diagnosis as a dictionary for JSON."""
        dispersion = self.dispersion
        return {
            "target": self.target,
            "headline": self.headline,
            "draw": draw_to_json(int(self.summary["used"]), int(self.summary["rows"])),
            "summary": {name: None if value != value else value for name, value in self.summary.items()},
            "mean_model": self.mean_model,
            "deviance_explained": self.explained,
            "dispersion": None if dispersion is None else {**asdict(dispersion), "direction": self.direction},
            "findings": [finding.to_dict() for finding in self.findings],
            "recommendation": {
                "likelihood": self.likelihood,
                "reason": self.reason,
                "arguments": self.arguments,
            },
            "notes": list(self.notes),
        }

    @property
    def direction(self) -> str | None:
        """The dispersion relative to a Poisson: "over", "under" or "equi"; None if it was not estimated.

        "equi" also means that the difference from a Poisson is not significant after Holm's correction.
        """
        if self.dispersion is None:
            return None
        return self.dispersion.direction if self.finding("dispersion").found else "equi"

    def __str__(self) -> str:
        lines = [self.headline, *(f"- {finding.words}" for finding in self.findings)]
        lines += [f"Note: {note}" for note in self.notes[self.dispersion is None :]]
        return "\n".join([*lines, f"Recommendation: {self._python_advice}"])

    def _repr_html_(self) -> str:
        rows = [
            (
                finding.name,
                finding.outcome,
                finding.effect,
                "< 0.001" if finding.adjusted < 0.001 else f"{finding.adjusted:.3f}",
            )
            for finding in self.findings
        ]
        checks = TextTable(("check", "result", "effect", "adjusted p"), rows).to_html() if rows else ""
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes[self.dispersion is None :])
        advice = f"<p><strong>Recommendation:</strong> {escape(self._python_advice)}</p>"
        return f"<p><strong>{escape(self.headline)}</strong></p>{checks}{notes}{advice}"

    @property
    def _python_advice(self) -> str:
        """The recommended likelihood, written as an argument of an estimator, and the reason."""
        return self.reason if self.likelihood is None else f'likelihood="{self.likelihood}". {self.reason}'

    @property
    def arguments(self) -> dict[str, int | str]:
        """The recommended arguments, to be used as `CountRegressor(**arguments)`; empty if nothing is recommended."""
        return {} if self.likelihood is None else {"likelihood": self.likelihood, **self.options}

"""The result of a comparison: one check after the other, with its p-value, its size, and whether both say drift."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ddpn.analysis.holm import holm

#: What each kind of check is about, and the size of a difference that matters, as a share of that of all checks.
KINDS = {"values": 1.0, "missing": 1.0, "ood": 1.0, "coverage": 0.5, "pit": 1.0}


@dataclass(frozen=True)
class Check:
    """One comparison.

    Parameters
    ----------
    kind : str
        "values" or "missing" of a column, "ood", "coverage" or "pit".
    name : str
        The column, or what is compared.
    effect : float
        The size of the difference, from 0 to 1: of shares of rows.
    p_value : float
        The probability of such a difference, or a larger one, where new rows are like the training rows.
    before, now : str
        What was in the training or is expected, and what the new rows have.
    is_ignored : bool
        Whether it is shown only.
    adjusted : float
        The p-value for all checks together.
    drift : bool
        Whether the difference is more than chance and large enough to matter.
    """

    kind: str
    name: str
    effect: float
    p_value: float
    before: str
    now: str
    is_ignored: bool = False
    adjusted: float = 1.0
    drift: bool = False

    @property
    def title(self) -> str:
        """What is compared, in words."""
        words = {"values": "values of {}", "missing": "missing values of {}"}
        return words.get(self.kind, "{}").format(self.name)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        known = {"kind": self.kind, "name": self.name, "drift": self.drift, "ignored": self.is_ignored}
        numbers = {"effect": self.effect, "p_value": self.p_value, "adjusted_p_value": self.adjusted}
        return {**known, **numbers, "before": self.before, "now": self.now}


@dataclass(frozen=True)
class Monitoring:
    """All checks of a table, those with drift first.

    Parameters
    ----------
    rows : int
        New rows.
    training_rows : int
        Rows that the summary of the training is of.
    counts : int
        New rows whose counts are known and were not trained on.
    alpha, effect : float
        The level of all tests together, and the least difference that matters.
    checks : tuple of Check
        The comparisons.
    not_compared : tuple of str
        Sentences about what could not be compared, and why.
    findings : tuple of str
        Sentences about unusual values.
    scores : dict
        Mean scores of the new rows with counts, and those of the test rows of the fit.
    """

    rows: int
    training_rows: int
    counts: int
    alpha: float
    effect: float
    checks: tuple[Check, ...]
    not_compared: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    scores: dict[str, Any] = field(default_factory=dict)

    @property
    def drift(self) -> bool:
        """Whether some check says drift."""
        return any(check.drift for check in self.checks)

    @property
    def shown(self) -> tuple[Check, ...]:
        """The checks without those of columns that are never missing, before or now."""
        return tuple(check for check in self.checks if check.kind != "missing" or check.effect > 0.0)

    @property
    def headline(self) -> str:
        """The result in a sentence."""
        found = [check.title for check in self.checks if check.drift]
        if not found:
            return f"No drift: {len(self.checks)} checks of {self.rows:,} rows."
        shown = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
        return f"Drift in {len(found)} of {len(self.checks)} checks of {self.rows:,} rows: {shown}."

    @property
    def detectable(self) -> str:
        """A sentence about the differences that so many rows can show."""
        sizes = 1.0 / self.rows + 1.0 / self.training_rows
        least = min(1.0, float(np.sqrt(-0.5 * np.log(self.alpha / max(2 * len(self.checks), 2)) * sizes)))
        return (
            f"With {self.rows:,} rows, a difference below about {least:.2g} in the distribution of a column cannot be "
            "distinguished from chance."
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        numbers = {"rows": self.rows, "training_rows": self.training_rows, "rows_with_counts": self.counts}
        return {
            "drift": self.drift,
            "headline": self.headline,
            **numbers,
            "alpha": self.alpha,
            "effect": self.effect,
            "checks": [check.as_dict() for check in self.checks],
            "not_compared": list(self.not_compared),
            "findings": list(self.findings),
            "scores": self.scores,
        }


def decided(checks: Sequence[Check], alpha: float, effect: float) -> tuple[Check, ...]:
    """Checks with adjusted p-values (Holm over all that count) and decisions, those with drift first.

    A check says drift if its adjusted p-value is below `alpha` and its effect is at least `effect` (half of that for
    coverage): with many rows, differences that do not matter are significant, too.

    >>> one, other = Check("ood", "a", 0.3, 0.001, "", ""), Check("ood", "b", 0.01, 1e-9, "", "")
    >>> [(check.name, check.adjusted, check.drift) for check in decided([one, other], 0.01, 0.1)]
    [('a', 0.001, True), ('b', 2e-09, False)]
    """
    counted, found = [check for check in checks if not check.is_ignored], []
    for check, adjusted in zip(counted, holm([check.p_value for check in counted]), strict=True):
        drift = adjusted < alpha and check.effect >= KINDS[check.kind] * effect
        found.append(replace(check, adjusted=adjusted, drift=drift))
    found += [check for check in checks if check.is_ignored]
    return tuple(sorted(found, key=lambda check: (not check.drift, check.is_ignored, -check.effect)))

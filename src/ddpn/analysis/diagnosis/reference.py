"""What counts are compared with, in words, and the finding about their dispersion."""

from typing import NamedTuple

import numpy as np

from ddpn.analysis.diagnosis.dispersion import LEVEL, Dispersion
from ddpn.analysis.diagnosis.recorded import Limits
from ddpn.analysis.diagnosis.result import Finding, write_p


class Reference(NamedTuple):
    """What the dispersion is relative to, in words: its name, and the variance of which it is a multiple."""

    name: str = "Poisson"
    ratio: str = "variance / mean"
    variance: str = "the mean"

    @classmethod
    def of(cls, limits: Limits | None) -> "Reference":
        """The reference of counts with these bounds and limits."""
        if limits is None:
            return cls()
        truncated = "truncated " if limits.lower.any() else ""
        if limits.is_bounded:
            return cls(f"{truncated}Binomial", "variance / that of a Binomial", "that of a Binomial with the same mean")
        censored = "before censoring" if np.isfinite(limits.limit).any() else "before truncation"
        return cls(f"{truncated}Poisson", f"variance / mean, {censored},", f"the mean, {censored}")


def dispersion_finding(found: Dispersion, label: str, reference: Reference) -> Finding:
    """The finding about the dispersion; `label` is that of the mean model."""
    interval = f"95% interval {found.low:.2f} to {found.high:.2f}"
    effect = f"{reference.ratio} {found.estimate:.2f} ({interval})"
    start = (
        f"Given these features and this mean model ({label}), the variance is {found.estimate:.2f} times "
        f"{reference.variance} ({interval}, {write_p(found.p_value)})"
    )
    more = {
        "over": ": over-dispersed. Features or interactions that the mean model lacks, worth about "
        f"±{found.spread:.0%} of the mean, would have the same effect.",
        "under": ": under-dispersed. Errors of the mean model can only hide under-dispersion, not cause it.",
        "equi": "",
    }[found.direction]
    contains = found.direction == "equi" and found.p_value >= LEVEL
    name = f"a {reference.name}"
    why = f"consistent with {name}" if contains else f"not clearly different from {name}, as several checks are made"
    kind = {"over": "over-dispersed", "under": "under-dispersed", "equi": ""}[found.direction]
    return Finding(
        "dispersion", kind, effect, found.p_value, found.direction != "equi", start + more, f"{start}: {why}."
    )

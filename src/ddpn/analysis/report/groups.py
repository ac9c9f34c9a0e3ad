"""Groups of rows by a column: how certain the model is in each, and the groups that are worth a sentence."""

from typing import NamedTuple

import numpy as np

from ddpn.analysis.explanations import Importances
from ddpn.analysis.gains import effective_rows, wilson, z_of
from ddpn.analysis.report.columns import coded
from ddpn.analysis.report.evidence import LEVEL, Evidence
from ddpn.analysis.report.numbers import fmt, mean, percent
from ddpn.tables.encoding.table import Column

#: A sentence is only about groups with so many rows, and such a share of all rows.
_MIN_ROWS, _MIN_SHARE = 10, 0.02
#: A standard deviation this much above (or below) what the mean count explains is worth a sentence.
_BEYOND = 1.25
#: Below this share of the variance the members agree.
_AGREED = 0.02


class Group(NamedTuple):
    """Rows that share a value or range of a column, and means over them; `size` is their effective number."""

    column: str
    label: str
    rows: int
    size: float
    observed: float
    predicted: float
    aleatoric: float
    epistemic: float
    coverage: float
    mae: float

    @property
    def variance(self) -> float:
        return self.aleatoric + self.epistemic

    @property
    def share(self) -> float:
        """The epistemic share of the variance."""
        return self.epistemic / self.variance if self.variance > 0 else 0.0


def group_of(column: str, label: str, evidence: Evidence, rows: np.ndarray) -> Group:
    """The group of these rows, given by a mask or by positions."""
    model, weight = evidence.model, evidence.weight[rows]
    values = (evidence.y, model.mean, evidence.aleatoric, evidence.epistemic, model.inside, model.error)
    return Group(column, label, len(weight), effective_rows(weight), *(mean(each[rows], weight) for each in values))


def groups(column: Column, evidence: Evidence) -> list[Group]:
    """A group per value, level or range of the column, in their order; rows without a value last."""
    codes, labels = coded(column)
    masks = ((label, codes == code) for code, label in enumerate(labels))
    return [group_of(column.name, label, evidence, mask) for label, mask in masks if mask.any()]


def driving_groups(found: Importances, evidence: Evidence, part: str) -> list[Group]:
    """The groups of the column whose shuffling changes this part of the variance most: "aleatoric" or "epistemic"."""
    first = next(iter(found.by(part)), None)
    if first is None or getattr(first, part).mean() <= 0:
        return []
    if first.role == "column":
        return groups(evidence.columns[first.position], evidence)
    return groups(Column(first.name, "number", getattr(evidence, first.role)), evidence)


def uncertainty_sentences(evidence: Evidence, aleatoric: list[Group], epistemic: list[Group]) -> list[tuple[str, str]]:
    """(topic, sentences) about where the model is uncertain and why; the groups are those of `driving_groups`."""
    whole = group_of("", "all rows", evidence, np.arange(len(evidence.y)))
    least = max(_MIN_ROWS, _MIN_SHARE * whole.rows)
    noisy, unknown = ([group for group in each if group.rows >= least] for each in (aleatoric, epistemic))
    found = []
    if noisy:
        found.append(("Most uncertain", _noise_sentences(max(noisy, key=lambda group: group.aleatoric), whole)))
    if reason := _reason(evidence, unknown, whole):
        found.append(("Reason", reason))
    # The group with the lowest coverage, if that is more than chance, which has as many attempts as there are groups.
    each = [*noisy, *unknown]
    highest = {group: wilson(group.coverage, group.size, z_of(len(each)))[1] for group in each}
    weakest = min(each, key=highest.__getitem__, default=whole)
    if highest.get(weakest, 1.0) < LEVEL:
        words = (
            f"Where {weakest.column} is {weakest.label}, the {percent(LEVEL, 0)} interval covers only "
            f"{percent(weakest.coverage)} of {weakest.rows:,} rows. Do not rely on it there."
        )
        found.append(("Narrow intervals", words))
    return found


def _noise_sentences(group: Group, whole: Group) -> str:
    deviation, usual = group.variance**0.5, whole.variance**0.5
    words = (
        f"Where {group.column} is {group.label}: the standard deviation is {fmt(deviation)} there and {fmt(usual)} "
        f"over all rows, the mean count {fmt(group.observed)} and {fmt(whole.observed)}. "
    )
    if whole.predicted <= 0 or group.predicted <= 0 or usual <= 0:
        return words
    beyond = (deviation / usual) / (group.predicted / whole.predicted) ** 0.5
    if beyond > _BEYOND:
        return words + f"That is {fmt(beyond)} times what the mean explains: these rows are hard to predict."
    if beyond < 1 / _BEYOND:
        return words + "That is less than the mean alone explains."
    if group.predicted < whole.predicted and deviation > usual:
        return words + "The mean does not explain it, because it is smaller there."
    return words + "The mean explains it: standard deviations grow with the square root of the mean."


def _reason(evidence: Evidence, unknown: list[Group], whole: Group) -> str:
    """Which part of the variance matters, and where the epistemic one is largest."""
    if evidence.components == 1:
        return "A single network has no epistemic uncertainty: fit several members to measure it."
    if whole.share < _AGREED:
        return (
            f"The {evidence.components} components of the mixture agree: their disagreement is {percent(whole.share)} "
            "of the variance. The rest is noise in the counts, which more training rows would not remove."
        )
    if not unknown:
        return ""
    group = max(unknown, key=lambda group: group.share)
    return (
        f"{percent(1 - whole.share)} of the variance is noise in the counts (aleatoric), {percent(whole.share)} is "
        f"disagreement between the components (epistemic). They disagree most where {group.column} is {group.label} "
        f"({percent(group.share)}): more training rows of that kind would help."
    )

"""Where the model is unsure, and why: groups by the columns that drive either part of its variance."""

from typing import NamedTuple

import numpy as np

from ddpn.features.table import Column
from ddpn.report.evidence import LEVEL, Evidence
from ddpn.report.groups import Group, group_of, groups, tellable
from ddpn.report.importance import Importance, Importances
from ddpn.report.numbers import fmt, percent, plural, wilson

#: A standard deviation this much beyond (or short of) what the mean count explains is worth a word.
_BEYOND = 1.25
#: Below this share of the variance the networks are taken to agree.
_AGREED = 0.02


class Driver(NamedTuple):
    """A column that moves a part of the variance, and the rows in groups by it."""

    name: str
    groups: list[Group]


def driver(found: Importances, evidence: Evidence, part: str) -> Driver | None:
    """The column whose shuffling changes this part most: "aleatoric" or "epistemic"."""
    ordered = found.by(part)
    if not ordered or getattr(ordered[0], part) <= 0:
        return None
    return Driver(ordered[0].name, groups(_column(ordered[0], evidence), evidence))


def _column(one: Importance, evidence: Evidence) -> Column:
    if one.column >= 0:
        return evidence.columns[one.column]
    assert evidence.exposure is not None
    return Column(one.name, "number", evidence.exposure)


def unsure_words(evidence: Evidence, noisy: Driver | None, strange: Driver | None) -> list[tuple[str, str]]:
    """(topic, sentences) for a verdict."""
    whole = group_of("all rows", evidence, np.ones(len(evidence.y), dtype=bool))
    words = []
    if noisy is not None and (told := tellable(noisy.groups, len(evidence.y))):
        words.append(("Least sure", _noisy_words(noisy.name, max(told, key=lambda group: group.aleatoric), whole)))
    if evidence.members == 1:
        words.append(("Why", "A single network cannot disagree with itself: what it does not know is not measured."))
    elif whole.share < _AGREED:
        words.append(
            (
                "Why",
                f"The {_members(evidence)} agree: their disagreement makes up {percent(whole.share)} of the "
                "variance. The rest is in the counts themselves, and more rows of the same kind would not remove it.",
            )
        )
    elif strange is not None and (told := tellable(strange.groups, len(evidence.y))):
        words.append(("Why", _strange_words(strange.name, max(told, key=lambda group: group.share), whole)))
    weak = _weakest(evidence, [one for one in (noisy, strange) if one is not None])
    return words + ([("Intervals fail", weak)] if weak else [])


def _members(evidence: Evidence) -> str:
    networks = plural(evidence.members - evidence.linear, "network")
    return f"{networks} and the GLM" if evidence.linear else networks


def _noisy_words(name: str, group: Group, whole: Group) -> str:
    deviation, usual = group.variance**0.5, whole.variance**0.5
    words = (
        f"Where {name} is {group.label}: the standard deviation there is {fmt(deviation)}, against {fmt(usual)} over "
        f"all rows. Counts there are {fmt(group.observed)} on average, against {fmt(whole.observed)}. "
    )
    if whole.predicted <= 0 or group.predicted <= 0 or usual <= 0:
        return words
    beyond = (deviation / usual) / (group.predicted / whole.predicted) ** 0.5
    if beyond > _BEYOND:
        return words + f"That is {fmt(beyond)} times what larger counts alone bring: these rows are hard to foresee."
    if beyond < 1 / _BEYOND:
        return words + "For counts of that size this is still rather sure."
    return words + "That is about what larger counts bring by themselves (the square root of their ratio)."


def _strange_words(name: str, group: Group, whole: Group) -> str:
    return (
        f"{percent(1 - whole.share)} of the variance is in the counts themselves (aleatoric), {percent(whole.share)} "
        f"is what the members disagree about (epistemic), most where {name} is {group.label}: {percent(group.share)} "
        f"there. More training rows like those would help."
    )


def _weakest(evidence: Evidence, drivers: list[Driver]) -> str:
    """The group whose intervals hold least, where that is no chance: Wilson's interval lies below the promise."""
    failing = [
        (wilson(group.coverage, group.size)[1], one.name, group)
        for one in drivers
        for group in tellable(one.groups, len(evidence.y))
        if wilson(group.coverage, group.size)[1] < LEVEL
    ]
    if not failing:
        return ""
    _, name, group = min(failing, key=lambda entry: entry[0])
    return (
        f"Where {name} is {group.label}, the {percent(LEVEL, 0)} interval held for {percent(group.coverage)} of "
        f"{group.rows:,} rows only. Do not rely on it there."
    )

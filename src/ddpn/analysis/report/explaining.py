"""What the report shows of explanations: which columns are measured, and the two sections about them."""

from collections.abc import Callable, Mapping
from typing import Any

from ddpn.analysis.explanations import Effects, Explanation, Importance, Importances, Interaction
from ddpn.analysis.explanations.column_effects import measured_effects
from ddpn.analysis.explanations.inputs import Inputs
from ddpn.analysis.explanations.pairs import measured_interactions
from ddpn.analysis.explanations.permutation import Observed, measured_importance
from ddpn.analysis.report import page
from ddpn.analysis.report.evidence import SEED, Evidence
from ddpn.analysis.report.figures import effects as figures
from ddpn.analysis.report.grids import Grid
from ddpn.analysis.report.numbers import fmt, percent, plural

#: Columns with figures: the most important ones for the mean, some of them for the spread; columns that are paired.
_SHOWN, _FOR_SPREAD, _PAIRED, _PAIRS = 6, 2, 5, 3


def explanation_of(
    model: Any, evidence: Evidence, progress: Callable[[str], object], names: Mapping[str, str] | None = None
) -> Explanation:
    """Shuffle every column, and measure effects and interactions of the most important ones.

    `names` are what the exposure and the upper bound are called.
    """
    inputs = Inputs(model, evidence.X, evidence.exposure, evidence.upper, names)
    known = Observed(evidence.y, evidence.weight, evidence.limit)
    importance = measured_importance(inputs, known, seed=SEED, progress=progress)
    if not importance.each:
        return Explanation(Effects([], 0), [], importance)
    chosen = [_position(inputs, one) for one in _important(importance)]
    effects = measured_effects(inputs, chosen, seed=SEED, progress=progress, may_screen=False)
    paired = [_position(inputs, one) for one in importance.by("mean")[:_PAIRED]]
    pairs = measured_interactions(inputs, paired, seed=SEED, progress=progress)
    return Explanation(effects, [pair for pair in pairs if pair.is_found], importance)


def _position(inputs: Inputs, one: Importance) -> int:
    return one.position if one.role == "column" else inputs.extra[one.role]


def _important(importance: Importances) -> list[Importance]:
    """The columns to show: by their importance for the mean, the last ones by that for the spread."""
    first = importance.by("mean")[: _SHOWN - _FOR_SPREAD]
    others = [one for one in importance.by("spread") if one not in first]
    rest = [one for one in importance.by("mean") if one not in first]
    chosen = first + others[:_FOR_SPREAD]
    return chosen + [one for one in rest if one not in chosen][: _SHOWN - len(chosen)]


def effects_section(found: Explanation, target: str) -> str:
    """Curves of the mean and of the spread side by side, and interactions; empty where nothing was measured."""
    if not found.effects.each:
        return ""
    scales = figures.scales(found.effects.each)
    words = [
        f"How the prediction of {target} changes with one column, for a typical row (accumulated local effects on "
        f"{plural(found.effects.rows, 'row')}). Each row is moved only to values near its own, so no unlikely "
        "combination of columns is predicted. Left: the mean. Right: the spread, as variance / mean, which is 1 for a "
        "Poisson; a column may change one without the other.",
        "The dotted line is the typical row. Bands and whiskers are 90% intervals: other rows, and networks or other "
        "members that disagree. Marks at the bottom have equally many rows between them. All figures of a side have "
        "the same scale, so a flat line is a weak effect. These are effects in the model, not causes.",
    ]
    if not found.effects.each[0].mean.log:
        words[0] = words[0].replace(
            "as variance / mean, which is 1 for a Poisson; a column may change one without the other.",
            "as the standard deviation.",
        )
    html = page.paragraphs(*words)
    for place, one in enumerate(found.effects.each):
        html += page.pair(*figures.effect_figures(one, place, scales))
    return html + _interactions(found.interactions)


def _interactions(found: list[Interaction]) -> str:
    if not found:
        return page.paragraphs(
            "Interactions: none above noise among the most important columns. The effects of two columns together are "
            "about the product of their effects on the mean."
        )
    html = page.heading("Interactions") + page.paragraphs(*(interaction_sentence(one) for one in found[:_PAIRS]))
    drawn: list[Any] = []
    for place, one in enumerate(found[:_PAIRS]):
        figure = figures.interaction_figure(one, place)
        drawn.append(
            page.grid_html(_grid(one), f"Predicted mean by {' and '.join(one.names)}") if figure is None else figure
        )
    return html + page.pair(*drawn)


def interaction_sentence(one: Interaction) -> str:
    """How large an interaction is, in words."""
    first, second = one.names
    size = percent(one.strength, 0) if one.log else fmt(one.strength)
    noise = percent(one.noise, 0) if one.log else fmt(one.noise)
    what = "of the mean" if one.log else "counts"
    return (
        f"The effect of {first} depends on {second}: what they do together differs from their own effects by about "
        f"{size} {what} (standard deviation over the rows; noise: {noise})."
    )


def _grid(one: Interaction) -> Grid:
    """Predicted means for each two levels."""
    first, second = one.points
    rows = [
        (figures.point_text(point), *(fmt(value) for value in row))
        for point, row in zip(first, one.level.tolist(), strict=True)
    ]
    return Grid((f"{one.names[0]} (rows), {one.names[1]} (columns)", *map(figures.point_text, second)), rows)

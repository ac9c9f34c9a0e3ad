"""Figures of rows of another kind than those trained on: how well they are told, and what laws say of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ddpn.distributions import Mixture
from ddpn.errors import InputError
from ddpn.experiments.experiment import Experiment, Method
from ddpn.experiments.figures.canvas import ACCENT, BAND, legend_below, panels
from ddpn.experiments.figures.predictions import Finished, finished
from ddpn.metrics import Detection, auroc, detection, matched, ood_score

#: Points of a curve that are drawn: one a threshold would make files of many megabytes and look the same.
_POINTS = 400
#: Methods of a kind have a colour and a width, and differ by their dashes.
_DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)), (0, (9, 2, 1, 1.5, 1, 1.5)))
_KINDS: dict[str, dict[str, Any]] = {
    "double": {"color": ACCENT, "lw": 2.0},
    "line": {"color": "0.55", "lw": 1.2},
    "count": {"color": "black"},
}
_LENGTH = {"color": "black", "lw": 0.8, "marker": "x", "ms": 4, "markevery": 0.1}
#: Where the columns of a key stand, in its width.
_COLUMNS = {"AUROC": 0.70, "AUPR": 0.85, "FPR80": 1.0}
_BINS = 40
_FILLED = {"facecolor": BAND, "edgecolor": ACCENT, "hatch": "//", "lw": 0.8}


@dataclass(frozen=True, eq=False)
class Judged:
    """A run with the total variance of its ensemble for test rows (`inside`) and for rows of another kind.

    `sizes` are the numbers of tokens of both, where the run has them.
    """

    run: Finished
    inside: Tensor
    outside: Tensor
    sizes: tuple[Tensor, Tensor] | None


def _judged(experiment: Experiment, out: Path, figure: str) -> list[Judged]:
    """Every finished run that was shown rows outside."""
    found = []
    for run in finished(experiment, out, figure):
        kept = run.predictions()
        if "outside" in kept:
            inside, outside = (ood_score(Mixture(run.law(kept[name]))) for name in ("raw", "outside"))
            sizes = (kept["size"], kept["outside_size"]) if "outside_size" in kept else None
            found.append(Judged(run, inside, outside, sizes))
    if not found:
        raise InputError(
            f"{out / experiment.name} must hold runs that were shown rows outside for the figure {figure}, got none. "
            "Run an experiment with outside in its file."
        )
    return found


def roc(experiment: Experiment, out: Path) -> Any:
    """ROC and precision-recall curves of the total variance, of all rows and of rows of equal lengths."""
    judged = _judged(experiment, out, "roc")
    looks = _looks([each.run.run.method for each in judged])
    sized = [each for each in judged if each.sizes is not None]
    figure, axes = panels(2 if sized else 1, 3, (11.0, 4.2 if not sized else 7.8), width_ratios=[1.0, 1.0, 1.0])
    # What length tells of all rows is what it must not tell of the others: the same direction in both.
    is_short = bool(sized) and auroc(*sized[0].sizes) < 0.5  # type: ignore[misc]
    _curves(axes[0], "all rows", judged, looks, is_short)
    if sized:
        _curves(axes[1], "rows of equal lengths", [_of_equal_lengths(each) for each in sized], looks, is_short)
    return figure


def _looks(methods: list[Method]) -> dict[str, dict[str, Any]]:
    """Colour, width and dashes by the method's name."""
    found: dict[str, dict[str, Any]] = {}
    used = dict.fromkeys(_KINDS, 0)
    for method in methods:
        kind = "line" if method.is_gaussian else "double" if method.head == "double_poisson" else "count"
        found[method.name] = {"ls": _DASHES[used[kind] % len(_DASHES)], **_KINDS[kind]}
        used[kind] += 1
    return found


def _of_equal_lengths(one: Judged) -> Judged:
    assert one.sizes is not None
    rows = matched(*one.sizes)
    inside, outside = (scores[kept] for scores, kept in zip((one.inside, one.outside), rows, strict=True))
    size_in, size_out = (sizes[kept] for sizes, kept in zip(one.sizes, rows, strict=True))
    return Judged(one.run, inside, outside, (size_in, size_out))


def _curves(axes: Any, title: str, judged: list[Judged], looks: dict[str, Any], is_short: bool) -> None:
    left, right, key = axes
    found = {each.run.label: detection(each.inside, each.outside) for each in judged}
    drawn = {each.run.label: looks[each.run.run.method.name] for each in judged}
    sizes = next((each.sizes for each in judged if each.sizes is not None), None)
    if sizes is not None:
        label = f"length alone ({'short' if is_short else 'long'})"
        inside, outside = (-size.double() if is_short else size.double() for size in sizes)
        found[label], drawn[label] = detection(inside, outside), _LENGTH
    for label, one in found.items():
        left.plot(*_thinned(one.roc.x + one.roc.y, one.roc), **drawn[label])
        right.plot(*_thinned(one.pr.x, one.pr), **drawn[label])
    one = next(iter(found.values()))
    left.plot([0, 1], [0, 1], color="0.8", lw=0.8, zorder=0)
    right.axhline(one.n_out / (one.n_in + one.n_out), color="0.8", lw=0.8, zorder=0)
    left.set(title=f"ROC, {title}", xlabel="false positive rate", ylabel="true positive rate")
    right.set(title=f"precision and recall, {title}", xlabel="recall", ylabel="precision", ylim=(None, 1.02))
    many = f"{len(judged[0].inside):,} test rows, {len(judged[0].outside):,} outside"
    _key(key, many, found, drawn)


def _thinned(along: Tensor, curve: Any) -> tuple[np.ndarray, np.ndarray]:
    """Points of a curve, evenly along something that ascends."""
    wanted = torch.linspace(float(along[0]), float(along[-1]), _POINTS, dtype=along.dtype)
    rows = torch.searchsorted(along.contiguous(), wanted).clamp(max=len(along) - 1).unique()
    return curve.x[rows].numpy(), curve.y[rows].numpy()


def _key(ax: Any, title: str, found: dict[str, Detection], drawn: dict[str, dict[str, Any]]) -> None:
    """A legend with a column for each number."""
    ax.set_axis_off()
    ax.set(xlim=(0, 1), ylim=(-len(found) - 0.5, 2.5), title=title)
    for name, x in _COLUMNS.items():
        ax.text(x, 1, name, ha="right", va="center", fontsize=8)
    for place, (label, one) in enumerate(found.items()):
        look = {name: value for name, value in drawn[label].items() if name != "markevery"}
        ax.plot([0.0, 0.06, 0.12], [-place] * 3, **look, markevery=[1])
        ax.text(0.15, -place, label, va="center", fontsize=8)
        for x, area in zip(_COLUMNS.values(), (one.auroc, one.aupr, one.fpr80), strict=True):
            ax.text(x, -place, f"{area.mean:.3f}", ha="right", va="center", fontsize=8)


def outside_pmfs(experiment: Experiment, out: Path) -> Any:
    """Appendix D.2: the ensembles' laws for a row of either kind, and the total variances of all rows."""
    judged = _judged(experiment, out, "outside_pmfs")
    kinds = [[each for each in judged if each.run.run.method.is_gaussian is line] for line in (False, True)]
    kinds = [kind for kind in kinds if kind]
    widest = max(map(len, kinds))
    size = (0.8 + 2.2 * max(widest, 2), 0.8 + 4.0 * len(kinds))
    figure, axes = panels(2 * len(kinds), widest, size, height_ratios=[1.2, 1.0] * len(kinds))
    for number, kind in enumerate(kinds):
        laws, variances = axes[2 * number : 2 * number + 2]
        for ax in laws[1:]:
            ax.sharex(laws[0])
            ax.sharey(laws[0])
            ax.tick_params(labelleft=False)
        for law, variance, one in zip(laws, variances, kind, strict=False):
            _laws(law, one)
            _variances(variance, one)
            law.set_title(one.run.label)
        for empty in [*laws[len(kind) :], *variances[len(kind) :]]:
            empty.remove()
        laws[0].set_ylabel("density" if kind[0].run.run.method.is_gaussian else "probability")
        # Not before all are drawn: a limit that is set is one for all that share it.
        laws[0].set_ylim(bottom=0)
        variances[0].set_ylabel("share of rows")
    legend_below(figure, [axes[0, 0], axes[1, 0]], columns=2)
    return figure


def _middle(scores: Tensor) -> int:
    """The row in the middle by its score."""
    return int(scores.argsort(stable=True)[(len(scores) - 1) // 2])


def _laws(ax: Any, one: Judged) -> None:
    """Of the row in the middle by total variance, inside and outside."""
    kept = one.run.predictions()
    rows = {"raw": _middle(one.inside), "outside": _middle(one.outside)}
    laws: list[Any] = [Mixture(one.run.law(kept[name][row])) for name, row in rows.items()]
    low, high = (torch.stack(ends) for ends in zip(*(law.interval(0.99) for law in laws), strict=True))
    labels = ("a test row with the median variance", "a row outside with the median variance")
    if one.run.run.method.is_gaussian:
        x = torch.linspace(float(low.min()), float(high.max()), 400, dtype=torch.float64)
        inside, outside = (law.log_prob(x).exp().numpy() for law in laws)
        ax.fill_between(x.numpy(), inside, **_FILLED, label=labels[0])
        ax.plot(x.numpy(), outside, color="black", lw=1.4, label=labels[1])
    else:
        y = torch.arange(0.0, float(high.max()) + 2, dtype=torch.float64)
        inside, outside = (law.log_prob(y).exp().numpy() for law in laws)
        ax.bar(y.numpy(), inside, 0.8, **_FILLED, label=labels[0])
        ax.plot(y.numpy(), outside, color="black", lw=1.4, marker="o", ms=3, label=labels[1])
    ax.set_xlabel("count")
    ax.xaxis.get_major_locator().set_params(integer=True)


def _variances(ax: Any, one: Judged) -> None:
    """Shares of the rows of either kind, in bins that are even on a scale of logarithms."""
    limits = torch.finfo(one.inside.dtype)
    scores = [side.clamp(limits.tiny, limits.max).log10().numpy() for side in (one.inside, one.outside)]
    ends = np.quantile(np.concatenate(scores), [0.001, 0.999])
    edges = np.linspace(ends[0] - 1e-6, ends[1] + 1e-6, _BINS + 1)
    inside, outside = (np.histogram(side.clip(*ends), edges)[0] / len(side) for side in scores)
    ax.stairs(inside, 10**edges, fill=True, **_FILLED, label="all test rows; 0.1% of either end in the end bins")
    ax.stairs(outside, 10**edges, color="black", lw=1.4, label="all rows outside")
    ax.set(xscale="log", xlabel="total variance")
    _few_ticks(ax, *ends)


def _few_ticks(ax: Any, low: float, high: float) -> None:
    """At most four, at 1, 2 and 5 of every decade or at fewer."""
    decades = range(int(np.floor(low)), int(np.ceil(high)) + 1)
    for steps in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [step * 10.0**decade for decade in decades for step in steps]
        ticks = [tick for tick in ticks if low <= np.log10(tick) <= high]
        if len(ticks) <= 4:
            break
    ticks = ticks[:: -(-len(ticks) // 4)] if ticks else [10**low, 10**high]
    ax.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
    ax.minorticks_off()

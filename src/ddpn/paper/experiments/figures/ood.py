"""Figures of out-of-distribution rows: how well they are detected, and the distributions predicted for them."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ddpn.distributions import Mixture
from ddpn.metrics import auroc
from ddpn.paper.experiments.detection import detection
from ddpn.paper.experiments.experiment import Experiment, Method
from ddpn.paper.experiments.figures.canvas import ACCENT, BAND, legend_below, panels
from ddpn.paper.experiments.results import finished_runs, predictions_of
from ddpn.paper.experiments.tables import COLUMNS, TOTAL, ScoredRun, scored

#: Points per curve: one per threshold would make files of many megabytes that look the same.
_POINTS = 400
#: A kind of method (highlighted, continuous, count) has a colour and a width; methods of one kind differ by dashes.
_KINDS: tuple[dict[str, Any], ...] = ({"color": ACCENT, "lw": 2.0}, {"color": "0.55", "lw": 1.2}, {"color": "black"})
_DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)), (0, (9, 2, 1, 1.5, 1, 1.5)))
_LENGTH = {"color": "black", "lw": 0.8, "marker": "x", "ms": 4, "markevery": 0.1}
_FILLED = {"facecolor": BAND, "edgecolor": ACCENT, "hatch": "//", "lw": 0.8}


def roc(experiment: Experiment, out: Path) -> Any:
    """ROC and precision-recall curves of the total variance, for all rows and for rows of equal length."""
    runs = scored(finished_runs(experiment, out, glms=False))
    styles = _styles([each.run.run.method for each in runs])
    with_lengths = [each for each in runs if each.lengths is not None]
    figure, axes = panels(2 if with_lengths else 1, 3, (11.0, 7.8 if with_lengths else 4.2))
    # The direction in which length alone detects OOD rows among all rows, for both rows of panels.
    is_short = bool(with_lengths) and auroc(*with_lengths[0].lengths) < 0.5  # type: ignore[misc]
    _curves(axes[0], "all rows", runs, styles, is_short)
    if with_lengths:
        equal = [each.with_equal_lengths() for each in with_lengths]
        _curves(axes[1], "rows of equal length", equal, styles, is_short)
    return figure


def _styles(methods: list[Method]) -> dict[str, dict[str, Any]]:
    """Colour, width and dashes by the method's name."""
    kinds = [0 if method.highlighted else 1 if method.is_continuous else 2 for method in methods]
    dashes = [_DASHES[kinds[:place].count(kind) % len(_DASHES)] for place, kind in enumerate(kinds)]
    return {m.name: {"ls": ls, **_KINDS[kind]} for m, kind, ls in zip(methods, kinds, dashes, strict=True)}


def _curves(axes: Any, title: str, runs: list[ScoredRun], styles: dict[str, Any], is_short: bool) -> None:
    left, right, legend = axes
    found = {each.run.label: detection(*each.scores[TOTAL]) for each in runs}
    drawn = {each.run.label: styles[each.run.run.method.name] for each in runs}
    lengths = next((each.lengths for each in runs if each.lengths is not None), None)
    if lengths is not None:
        label, sign = f"length alone ({'short' if is_short else 'long'})", -1.0 if is_short else 1.0
        found[label], drawn[label] = detection(*(sign * length.double() for length in lengths)), _LENGTH
    width = max(map(len, found))
    for label, one in found.items():
        numbers = "  ".join(f"{getattr(one, name.lower()).mean:.3f}" for name in COLUMNS)
        left.plot(*_thinned(one.roc.x + one.roc.y, one.roc), **drawn[label], label=f"{label:{width}}  {numbers}")
        right.plot(*_thinned(one.pr.x, one.pr), **drawn[label])
    one = next(iter(found.values()))
    left.plot([0, 1], [0, 1], color="0.8", lw=0.8, zorder=0)
    right.axhline(one.n_out / (one.n_in + one.n_out), color="0.8", lw=0.8, zorder=0)
    left.set(title=f"ROC, {title}", xlabel="false positive rate", ylabel="true positive rate")
    right.set(title=f"precision and recall, {title}", xlabel="recall", ylabel="precision", ylim=(None, 1.02))
    test, ood = (len(scores) for scores in runs[0].scores[TOTAL])
    legend.set_axis_off()
    legend.set_title(f"{test:,} test rows, {ood:,} OOD rows")
    # With letters of one width the numbers stand below each other.
    head, font = f"{'':{width}}  " + "  ".join(f"{name:5}" for name in COLUMNS), {"family": "monospace", "size": 7}
    look: Any = {"alignment": "right", "frameon": False, "handlelength": 3, "labelspacing": 0.9}
    entries = left.get_legend_handles_labels()
    legend.legend(*entries, title=head, title_fontproperties=font, prop=font, loc="upper left", **look)


def _thinned(along: Tensor, curve: Any) -> tuple[np.ndarray, np.ndarray]:
    """Points of a curve at even distances along an ascending coordinate."""
    wanted = torch.linspace(float(along[0]), float(along[-1]), _POINTS, dtype=along.dtype)
    rows = torch.searchsorted(along.contiguous(), wanted).clamp(max=len(along) - 1).unique()
    return curve.x[rows].numpy(), curve.y[rows].numpy()


def ood_pmfs(experiment: Experiment, out: Path) -> Any:
    """Figures 30 and 31: the ensembles' distributions for a test row and an OOD row, and all total variances."""
    runs = scored(finished_runs(experiment, out, glms=False))
    both = ([each for each in runs if each.run.run.method.is_continuous is kind] for kind in (False, True))
    kinds = [kind for kind in both if kind]
    widest = max(map(len, kinds))
    size = (0.8 + 2.2 * max(widest, 2), 0.8 + 4.0 * len(kinds))
    figure, axes = panels(2 * len(kinds), widest, size, height_ratios=[1.2, 1.0] * len(kinds))
    for number, kind in enumerate(kinds):
        above, below = axes[2 * number : 2 * number + 2]
        for ax in above[1:]:
            ax.sharex(above[0])
            ax.sharey(above[0])
            ax.tick_params(labelleft=False)
        for dist, variance, one in zip(above, below, kind, strict=False):
            _distributions(dist, one)
            _variances(variance, *one.scores[TOTAL])
            dist.set_title(one.run.label)
        for empty in [*above[len(kind) :], *below[len(kind) :]]:
            empty.remove()
        above[0].set_ylabel("density" if kind[0].run.run.method.is_continuous else "probability")
        # Only after all are drawn: a limit that is set holds for all panels that share it.
        above[0].set_ylim(bottom=0)
        below[0].set_ylabel("share of rows")
    legend_below(figure, [axes[0, 0], axes[1, 0]], columns=2)
    return figure


def _distributions(ax: Any, one: ScoredRun) -> None:
    """For the rows with the median total variance."""
    is_continuous, tensors = one.run.run.method.is_continuous, predictions_of(one.run.folder)
    rows = [int(scores.argsort(stable=True)[(len(scores) - 1) // 2]) for scores in one.scores[TOTAL]]
    raws = (tensors["raw"][rows[0]], tensors["ood"][rows[1]])
    mixtures: list[Any] = [Mixture(one.run.distribution(raw)) for raw in raws]
    ends = torch.cat([torch.stack(dist.interval(0.99)) for dist in mixtures])
    low, high = float(ends.min()), float(ends.max())
    x = np.linspace(low, high, 400) if is_continuous else np.arange(0.0, high + 2)
    test, ood = (dist.log_prob(torch.from_numpy(x)).exp().numpy() for dist in mixtures)
    fill = ax.fill_between if is_continuous else partial(ax.bar, width=0.8)
    fill(x, test, **_FILLED, label="a test row with the median variance")
    marker = {} if is_continuous else {"marker": "o", "ms": 3}
    ax.plot(x, ood, color="black", lw=1.4, **marker, label="an OOD row with the median variance")
    ax.set_xlabel("count")
    ax.xaxis.get_major_locator().set_params(integer=True)


def _variances(ax: Any, *both: Tensor) -> None:
    """Histograms of test rows and OOD rows, with bins of equal width on a logarithmic scale."""
    limits = torch.finfo(both[0].dtype)
    scores = [side.clamp(limits.tiny, limits.max).log10().numpy() for side in both]
    ends = np.quantile(np.concatenate(scores), [0.001, 0.999])
    edges = np.linspace(ends[0] - 1e-6, ends[1] + 1e-6, 41)
    test, ood = (np.histogram(side.clip(*ends), edges)[0] / len(side) for side in scores)
    ax.stairs(test, 10**edges, fill=True, **_FILLED, label="all test rows; 0.1% of either end in the end bins")
    ax.stairs(ood, 10**edges, color="black", lw=1.4, label="all OOD rows")
    ax.set(xscale="log", xlabel="total variance")
    _few_ticks(ax, *ends)


def _few_ticks(ax: Any, low: float, high: float) -> None:
    """At most four ticks at round numbers."""
    decades = range(int(np.floor(low)), int(np.ceil(high)) + 1)
    for steps in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [step * 10.0**decade for decade in decades for step in steps]
        ticks = [tick for tick in ticks if low <= np.log10(tick) <= high]
        if len(ticks) <= 4:
            break
    ticks = ticks[:: -(-len(ticks) // 4)] if ticks else [10**low, 10**high]
    ax.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
    ax.minorticks_off()

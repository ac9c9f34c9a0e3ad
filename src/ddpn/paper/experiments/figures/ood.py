"""The figure of out-of-distribution rows: the distributions predicted for them."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ddpn.distributions import Mixture
from ddpn.paper.experiments.experiment import Experiment
from ddpn.paper.experiments.figures.canvas import ACCENT, BAND, legend_below, panels
from ddpn.paper.experiments.results import finished_runs, predictions_of
from ddpn.paper.experiments.tables import ScoredRun, scored

_FILLED = {"facecolor": BAND, "edgecolor": ACCENT, "hatch": "//", "lw": 0.8}


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
            _variances(variance, *one.variances)
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
    rows = [int(scores.argsort(stable=True)[(len(scores) - 1) // 2]) for scores in one.variances]
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

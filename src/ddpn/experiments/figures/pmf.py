"""The predictive law of one test row: its members, their ensemble, and the count that was observed."""

from typing import Any

import torch
from torch import Tensor

from ddpn.distributions import Mixture
from ddpn.experiments.figures.canvas import ACCENT, BAND

#: A row with few, one with a middling number and one with many.
QUANTILES = (0.1, 0.5, 0.95)


def at_quantiles(counts: Tensor) -> list[int]:
    """The first row that has the count at each of the quantiles."""
    wanted = counts.double().quantile(torch.tensor(QUANTILES, dtype=torch.float64), interpolation="nearest")
    return [int((counts == y).nonzero()[0]) for y in wanted]


def draw_pmf(ax: Any, members: Any, observed: float) -> None:
    """The pmf of every member (M,) of a count law and of the ensemble, up to a thousandth of its mass."""
    ensemble: Any = Mixture(members)
    low, high = (float(end) for end in ensemble.interval(0.999))
    y = torch.arange(max(0.0, low - 1), high + 2, dtype=torch.float64)
    heights = ensemble.log_prob(y).exp().numpy()
    ax.bar(y.numpy(), heights, 0.8, color=BAND, edgecolor=ACCENT, hatch="//", label="ensemble")
    each = members.log_prob(y[:, None]).exp()
    ax.plot(y.numpy(), each.numpy(), color="0.35", lw=0.8, marker="o", ms=2.5)
    ax.plot([], [], color="0.35", lw=0.8, marker="o", ms=2.5, label="members")
    ax.axvline(observed, color="black", ls=":", lw=1.2, label="observed")
    ax.xaxis.get_major_locator().set_params(integer=True)

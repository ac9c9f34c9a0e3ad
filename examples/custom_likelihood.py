"""A likelihood of one's own, in one file: the zero-inflated Poisson.

Run `python examples/custom_likelihood.py`. Some anglers in a park never fish, the others catch a Poisson number of
fish; who fishes and how many they catch depend on different things. A law says what is known of it in closed form, a
head turns a network's raw numbers into the law, one line registers it, and a `CountRegressor` takes it by its name.
"""

import argparse
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import constraints
from torch.nn.functional import logsigmoid

from ddpn import CountRegressor, Poisson
from ddpn.distributions import CountDistribution
from ddpn.heads import HEADS, Head
from ddpn.heads.clamps import LOG_MU, bend
from ddpn.heads.head import promoted
from ddpn.heads.intercept import Rows, fit

#: Bounds on the log-odds of a zero that is no Poisson's: beyond, no data could tell.
LOG_ODDS = (-12.0, 12.0)


class ZeroInflatedPoisson(CountDistribution):
    """0 with probability `never`, else Poisson(mu): cdf, quantiles, intervals, CRPS and samples come with the class."""

    arg_constraints = {"mu": constraints.positive, "never": constraints.unit_interval}

    def __init__(self, mu: Tensor, never: Tensor, validate_args: bool | None = None) -> None:
        self.mu, self.never = torch.broadcast_tensors(torch.as_tensor(mu), torch.as_tensor(never))
        super().__init__(self.mu.shape, validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(y), differentiable."""
        others = torch.log1p(-self.never) + Poisson(self.mu, validate_args=False).log_prob(value)
        return torch.where(torch.as_tensor(value) > 0, others, torch.logaddexp(self.never.log(), others))

    def bracket(self, depth: float) -> tuple[Tensor, Tensor]:
        """From 0, where the spike is, to where the Poisson ends."""
        return torch.zeros_like(self.mu), Poisson(self.mu, validate_args=False).bracket(depth)[1]

    def rows(self, index: Any) -> "ZeroInflatedPoisson":
        """The distributions of some rows."""
        return ZeroInflatedPoisson(self.mu[index], self.never[index], validate_args=False)

    @property
    def mean(self) -> Tensor:
        """(1 - never) mu: closed forms are faster than the sums that come with the class."""
        return (1.0 - self.never) * self.mu

    @property
    def variance(self) -> Tensor:
        """(1 - never) mu (1 + never mu)."""
        return self.mean * (1.0 + self.never * self.mu)


class ZeroInflatedHead(Head):
    """raw = (log mu, log-odds of never). An exposure multiplies mu."""

    name = "zero_inflated_poisson"
    n_raw = 2
    support = constraints.nonnegative_integer

    def forward(self, raw: Tensor, exposure: Tensor | None = None) -> ZeroInflatedPoisson:
        """ZeroInflatedPoisson(exposure * e^raw0, sigmoid(raw1))."""
        log_mu, log_odds = _links(promoted(raw), exposure)
        return ZeroInflatedPoisson(log_mu.exp(), log_odds.sigmoid(), validate_args=False)

    def loss(self, raw: Tensor, y: Tensor, exposure: Tensor | None = None) -> Tensor:
        """-log p(y), in float64, from logarithms alone: nothing overflows."""
        log_mu, log_odds = _links(raw.double(), exposure)
        y = y.double()
        others = logsigmoid(-log_odds) + y * log_mu - log_mu.exp() - torch.lgamma(y + 1.0)
        log_p = torch.where(y > 0, others, torch.logaddexp(logsigmoid(log_odds), others))
        return -log_p.to(promoted(raw).dtype)

    def start(self, y: Tensor, weight: Tensor | None = None, exposure: Tensor | None = None) -> Tensor:
        """Maximum likelihood, from the mean of the positive counts and the share of zeros."""
        rows = Rows(y, weight, exposure)
        some = (rows.y > 0).double()
        share = rows.mean(some).clamp(1e-6, 1.0 - 1e-6)
        log_mu = (rows.mean(rows.y) / (rows.mean(some * rows.scale) + 1e-12)).log().clamp(*LOG_MU)
        bounds = [(LOG_MU[0] - 1.0, LOG_MU[1] + 1.0), LOG_ODDS]
        guess = torch.stack([log_mu, -torch.logit(share)])
        return fit(lambda raw: rows.mean(self.loss(raw, rows.y, rows.exposure)), guess, bounds)


def _links(raw: Tensor, exposure: Tensor | None) -> tuple[Tensor, Tensor]:
    log_mu, log_odds = bend(raw[..., 0], *LOG_MU), bend(raw[..., 1], *LOG_ODDS)
    return log_mu if exposure is None else log_mu + exposure.to(raw.dtype).log(), log_odds


# The one line; before loading a saved model with this likelihood, too.
HEADS[ZeroInflatedHead.name] = ZeroInflatedHead


def anglers(rows: int = 3000, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, catches, and the probability that a party does not fish at all."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(rows, 2))
    never = 1 / (1 + np.exp(-2 * X[:, 1]))
    caught = rng.poisson(np.exp(1.2 + 0.6 * X[:, 0]))
    return X, np.where(rng.random(rows) < never, 0, caught), never


def run(rows: int = 3000, **options: Any) -> dict[str, float]:
    """CRPS of the new likelihood beside two that ship, and how well it knows who never fishes."""
    X, y, never = anglers(rows)
    train, test = slice(0, int(0.8 * rows)), slice(int(0.8 * rows), None)
    settings = {"members": 2, "hidden": (32, 32), "numeric": "standard", "random_state": 0, **options}
    found = {}
    for name in (ZeroInflatedHead.name, "double_poisson", "poisson"):
        model = CountRegressor(likelihood=name, **settings).fit(X[train], y[train])
        found[name] = model.crps(X[test], y[test])
        print(f"{name:>22}: CRPS {found[name]:.4f}")
        if name == ZeroInflatedHead.name:
            laws = model.predict_distribution(X[test]).components
            error = laws.never.mean(-1).numpy() - never[test]
            found["never"] = float(np.abs(error).mean())
    print(f"\nThe probability of not fishing at all is off by {found['never']:.3f} on average.")
    return found


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    run()


if __name__ == "__main__":
    main()

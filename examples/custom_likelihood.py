"""Your own likelihood in one file: the zero-inflated Poisson.

Run `python examples/custom_likelihood.py`. Some visitors of a park never fish, the others catch a Poisson number of
fish; whether they fish and how many fish they catch depend on different inputs. The distribution is a class, a head
turns the raw outputs of a network into this distribution, and one line registers the head. `CountRegressor`,
`CountGLM`, the command line and the report then accept the likelihood by its name.
"""

import argparse
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import constraints

from ddpn import DDPNRegressor, Poisson
from ddpn.distributions import CountDistribution
from ddpn.networks.heads import HEADS, Head
from ddpn.networks.heads.clamps import bend, log_mean
from ddpn.networks.heads.head import promote_precision

#: Bounds on the log-odds of a row that is always 0; no data could distinguish values beyond them.
LOG_ODDS = (-12.0, 12.0)


class ZeroInflatedPoisson(CountDistribution):
    """0 with probability `never`, else Poisson(mu). The base class adds cdf, quantiles, intervals, CRPS and samples."""

    arg_constraints = {"mu": constraints.positive, "never": constraints.unit_interval}

    def __init__(self, mu: Tensor, never: Tensor, validate_args: bool | None = None) -> None:
        self.mu, self.never = torch.broadcast_tensors(torch.as_tensor(mu), torch.as_tensor(never))
        super().__init__(self.mu.shape, validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log probability of the counts `value`, differentiable in the parameters."""
        others = torch.log1p(-self.never) + Poisson(self.mu, validate_args=False).log_prob(value)
        return torch.where(torch.as_tensor(value) > 0, others, torch.logaddexp(self.never.log(), others))

    def bracket(self, depth: float) -> tuple[Tensor, Tensor]:
        """Return a range that holds nearly all probability, from 0 to the end of the Poisson's range."""
        return torch.zeros_like(self.mu), Poisson(self.mu, validate_args=False).bracket(depth)[1]

    def rows(self, index: Any) -> "ZeroInflatedPoisson":
        """Return the distributions of some rows."""
        return ZeroInflatedPoisson(self.mu[index], self.never[index], validate_args=False)

    @property
    def mean(self) -> Tensor:
        """Return (1 - never) mu: closed forms are faster than the sums of the base class."""
        return (1.0 - self.never) * self.mu

    @property
    def variance(self) -> Tensor:
        """Return (1 - never) mu (1 + never mu)."""
        return self.mean * (1.0 + self.never * self.mu)


class ZeroInflatedHead(Head):
    """Zero-inflated Poisson: some rows are always 0, the others Poisson.

    raw = (log mu, log-odds of never). An exposure multiplies mu. The base class adds the loss, -log p(y), and the
    start, a fit without features.
    """

    name = "zero_inflated_poisson"
    n_raw = 2
    support = constraints.nonnegative_integer
    parameter_names = ("log mu", "log-odds of never")

    def forward(self, raw: Tensor, exposure: Tensor | None = None) -> ZeroInflatedPoisson:
        """Return ZeroInflatedPoisson(exposure * e^raw0, sigmoid(raw1))."""
        raw = promote_precision(raw)
        mu, never = log_mean(raw[..., 0], exposure).exp(), bend(raw[..., 1], *LOG_ODDS).sigmoid()
        return ZeroInflatedPoisson(mu, never, validate_args=False)


# Register the head. Do this also before you load a saved model with this likelihood.
HEADS[ZeroInflatedHead.name] = ZeroInflatedHead


def simulate_anglers(rows: int = 3000, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate inputs, catches, and the probability that a party does not fish at all."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(rows, 2))
    never = 1 / (1 + np.exp(-2 * X[:, 1]))
    caught = rng.poisson(np.exp(1.2 + 0.6 * X[:, 0]))
    return X, np.where(rng.random(rows) < never, 0, caught), never


def run(rows: int = 3000, **options: Any) -> dict[str, float]:
    """Return the CRPS of the new likelihood and of two built-in ones, and the error of the estimated `never`."""
    X, y, never = simulate_anglers(rows)
    train, test = slice(0, int(0.8 * rows)), slice(int(0.8 * rows), None)
    settings = {"n_networks": 2, "hidden": (32, 32), "numeric": "standard", "random_state": 0, **options}
    scores = {}
    for name in (ZeroInflatedHead.name, "double_poisson", "poisson"):
        model = DDPNRegressor(likelihood=name, preset="default", **settings).fit(X[train], y[train])
        scores[name] = model.crps(X[test], y[test])
        print(f"{name:>22}: CRPS {scores[name]:.4f}")
        if name == ZeroInflatedHead.name:
            members = model.predict_distribution(X[test]).distribution.components
            error = members.never.mean(-1).numpy() - never[test]
            scores["never"] = float(np.abs(error).mean())
    print(f"\nThe probability of not fishing at all is off by {scores['never']:.3f} on average.")
    return scores


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    run()


if __name__ == "__main__":
    main()

"""Your own likelihood in one file: the one-inflated Poisson.

Run `python examples/custom_likelihood.py`. Some visitors of a library fetch the one book that they have reserved, the
others borrow a Poisson number of books; whether visitors have a reservation and how many books the others borrow depend
on different inputs. The distribution is a class, a head turns the raw outputs of a network into this distribution, and
one line registers the head. `CountRegressor`, `CountGLM` and the report of a program that imports this file then accept
the likelihood by its name. `docs/how-to/custom-likelihood.md` shows how the command line does.
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

#: Bounds on the log-odds of a row that is always 1; no data could distinguish values beyond them.
LOG_ODDS = (-12.0, 12.0)


class OneInflatedPoisson(CountDistribution):
    """1 with probability `once`, else Poisson(mu). The base class adds cdf, quantiles, intervals, CRPS and samples."""

    arg_constraints = {"mu": constraints.positive, "once": constraints.unit_interval}

    def __init__(self, mu: Tensor, once: Tensor, validate_args: bool | None = None) -> None:
        self.mu, self.once = torch.broadcast_tensors(torch.as_tensor(mu), torch.as_tensor(once))
        super().__init__(self.mu.shape, validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log probability of the counts `value`, differentiable in the parameters.

        Every count has a positive probability here. For a distribution on {1, 2, ...}, return -inf at 0.
        """
        others = torch.log1p(-self.once) + Poisson(self.mu, validate_args=False).log_prob(value)
        return torch.where(torch.as_tensor(value) == 1, torch.logaddexp(self.once.log(), others), others)

    def bracket(self, depth: float) -> tuple[Tensor, Tensor]:
        """Return a range that holds nearly all probability, from 0 to the end of the Poisson's range, at least 1."""
        return torch.zeros_like(self.mu), Poisson(self.mu, validate_args=False).bracket(depth)[1].clamp(min=1)

    def rows(self, index: Any) -> "OneInflatedPoisson":
        """Return the distributions of some rows."""
        return OneInflatedPoisson(self.mu[index], self.once[index], validate_args=False)

    @property
    def mean(self) -> Tensor:
        """Return once + (1 - once) mu: closed forms are faster than the sums of the base class."""
        return self.once + (1.0 - self.once) * self.mu

    @property
    def variance(self) -> Tensor:
        """Return (1 - once) mu + once (1 - once) (mu - 1)^2."""
        return (1.0 - self.once) * (self.mu + self.once * (self.mu - 1.0) ** 2)


class OneInflatedHead(Head):
    """One-inflated Poisson: some rows are always 1, the others Poisson.

    raw = (log mu, log-odds of once). An exposure multiplies mu. The base class adds the loss, -log p(y), and the
    start, a fit without features.
    """

    name = "one_inflated_poisson"
    n_raw = 2
    support = constraints.nonnegative_integer
    parameter_names = ("log mu", "log-odds of once")

    def forward(self, raw: Tensor, exposure: Tensor | None = None) -> OneInflatedPoisson:
        """Return OneInflatedPoisson(exposure * e^raw0, sigmoid(raw1))."""
        raw = promote_precision(raw)
        mu, once = log_mean(raw[..., 0], exposure).exp(), bend(raw[..., 1], *LOG_ODDS).sigmoid()
        return OneInflatedPoisson(mu, once, validate_args=False)


# Register the head. Do this also before you load a saved model with this likelihood.
HEADS[OneInflatedHead.name] = OneInflatedHead


def simulate_loans(rows: int = 3000, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate inputs, numbers of borrowed books, and the probability that a visitor fetches one reserved book."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(rows, 2))
    once = 1 / (1 + np.exp(-2 * X[:, 1]))
    borrowed = rng.poisson(np.exp(1.6 + 0.5 * X[:, 0]))
    return X, np.where(rng.random(rows) < once, 1, borrowed), once


def run(rows: int = 3000, **options: Any) -> dict[str, float]:
    """Return the CRPS of the new likelihood and of two built-in ones, and the error of the estimated `once`."""
    X, y, once = simulate_loans(rows)
    train, test = slice(0, int(0.8 * rows)), slice(int(0.8 * rows), None)
    settings = {"n_networks": 2, "hidden": (32, 32), "numeric": "standard", "random_state": 0, **options}
    scores = {}
    for name in (OneInflatedHead.name, "double_poisson", "poisson"):
        model = DDPNRegressor(likelihood=name, preset="default", **settings).fit(X[train], y[train])
        scores[name] = model.crps(X[test], y[test])
        print(f"{name:>22}: CRPS {scores[name]:.4f}")
        if name == OneInflatedHead.name:
            members = model.predict_distribution(X[test]).distribution.components
            error = members.once.mean(-1).numpy() - once[test]
            scores["once"] = float(np.abs(error).mean())
    print(f"\nThe probability of a reservation is off by {scores['once']:.3f} on average.")
    return scores


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    run()


if __name__ == "__main__":
    main()

"""Test what only a new process shows: constants first computed in inference mode, and the peak of its memory."""

AFTER_INFERENCE = """
import torch
from ddpn import DoublePoisson, NegativeBinomial, Poisson

mu = torch.tensor([0.01, 3.0, 7.0, 100.3, 300.0, 200.0, 1e-3])
gamma = torch.tensor([2.0, 0.8, 30.0, 150.0, 0.2, 0.05, 0.01])
y = torch.tensor([0.0, 2.0, 7.0, 100.0, 350.0, 90.0, 400.0])
makers = (DoublePoisson, lambda mu, gamma: Poisson(mu), NegativeBinomial)
with torch.inference_mode():
    for make in makers:
        law = make(mu, gamma)
        law.log_prob(y), law.cdf(y), law.survival(y), law.crps(y), law.entropy(), law.mode, law.sample()
        law.mean, law.variance, law.icdf(torch.tensor(0.3)), law.interval(0.9)
for make in makers:
    parameters = mu.clone().requires_grad_(), gamma.clone().requires_grad_()
    law = make(*parameters)
    (law.log_prob(y).sum() + law.mean.sum() + law.variance.sum()).backward()
    assert torch.isfinite(parameters[0].grad).all()
    law.crps(y), law.cdf(y)
"""

MEMORY = """
import resource
import sys

import torch

from ddpn import DoublePoisson

unit = 1 if sys.platform == "darwin" else 1024
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
rows = 150_000
seed = torch.Generator().manual_seed(0)
uniform = lambda low, high: torch.empty(rows, dtype=torch.float64).uniform_(low, high, generator=seed)
mu, gamma = uniform(-4, 9).exp(), uniform(-5, 3).exp()
y = (mu * uniform(0, 2)).floor()
law = DoublePoisson(mu, gamma)
DoublePoisson(mu[:100], gamma[:100]).crps(y[:100])
start = peak()
score = law.crps(y)
print(peak() - start)
assert score.shape == (rows,)
assert (score >= 0).all() and torch.isfinite(score).all()
"""


def test_training_works_after_inference_and_many_rows_take_little_memory(python):
    """Constants that are computed once, first in inference mode, must serve autograd later.

    A CRPS of 150,000 rows takes under 0.25 GB above the inputs; a table of 2000 entries per row would take 2.4 GB.
    """
    process = python("-c", AFTER_INFERENCE + MEMORY)
    assert process.wait() == 0, process.err.read_text()
    assert int(process.out.read_text()) < 0.25e9

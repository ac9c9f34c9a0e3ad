"""Memory stays bounded however many rows there are: measured as the peak of a process of its own."""

import subprocess
import sys

SCRIPT = """
import resource
import sys

import torch

from ddpn import DoublePoisson

unit = 1 if sys.platform == "darwin" else 1024
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
rows = 1_000_000
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


def test_a_million_rows_of_crps():
    """Under 1.5 GB above the inputs; a table of 2000 entries a row would take 16 GB."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1.5e9

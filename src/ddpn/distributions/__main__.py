"""Compile the kernels of the default model: `python -m ddpn.distributions`.

Compiled kernels are kept on disk, so processes that are started later load them instead of compiling them. Kernels of
other families are compiled on their first use, or by `python -m ddpn.distributions all`.
"""

import sys

import torch
from joblib import Parallel, delayed

from ddpn import distributions
from ddpn.distributions.kernels import compiling
from ddpn.distributions.parametric import ParametricDistribution

#: The families of the default model's mixtures.
DEFAULT_FAMILIES = ["DoublePoisson", "NegativeBinomial", "Poisson"]


def compile_kernels(name: str) -> None:
    """Compile all kernels of a distribution class, given by its name in `ddpn.distributions`.

    Each method is called once for a distribution with an ordinary mean and for one with a very large mean, because
    these use different kernels.
    """
    compiling.announced.add(compiling.ANNOUNCEMENT)
    dist = make_example(name)
    y = torch.tensor([3.0, 3.0], dtype=torch.float64)
    levels = torch.tensor([0.5], dtype=torch.float64)
    for value in (dist.log_prob(y), dist.float32_log_prob(y), dist.cdf(y), dist.information()):
        assert value is not None
    dist.summary(levels, y, entropy=True, interval_level=0.8)


def make_example(name: str) -> ParametricDistribution:
    """Make an instance of the distribution class `name` with a batch of two distributions, of means 3 and 1e9."""
    kind = getattr(distributions, name)
    large = torch.tensor([3.0, 1e9], dtype=torch.float64)
    if kind is distributions.Discretized:
        return kind(torch.distributions.Normal(large, 0.5 * large))
    values = {"total": 4.0 * large}
    return kind(
        **{name: values.get(name, large if name == "mu" else torch.ones_like(large)) for name in kind.arg_constraints}
    )


def main() -> None:
    """Compile the kernels of the default families, or of all families if "all" is among the command-line arguments.

    Families are compiled in parallel processes.
    """
    families = DEFAULT_FAMILIES
    if "all" in sys.argv[1:]:
        families = [name for name in distributions.__all__ if hasattr(getattr(distributions, name), "family")]
    first, *others = families
    compile_kernels(first)  # with the kernels that all families share
    # Processes are forked where that is possible: they need not import or compile anything again.
    Parallel(n_jobs=-1, backend="multiprocessing")(map(delayed(compile_kernels), others))


if __name__ == "__main__":
    main()

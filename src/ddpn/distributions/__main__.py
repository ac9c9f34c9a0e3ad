"""`python -m ddpn.distributions` compiles the kernels of the default model, so that no later process has to wait.

Kernels of other families are compiled on their first use, or by `python -m ddpn.distributions all`.
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
    """Compile the kernels of one class, by computing all results for an ordinary mean and for a very large one."""
    compiling.announced.append(True)
    dist = make_example(name)
    y = torch.tensor([3.0, 3.0], dtype=torch.float64)
    levels = torch.tensor([0.5], dtype=torch.float64)
    for value in (dist.log_prob(y), dist.float32_log_prob(y), dist.cdf(y), dist.information()):
        assert value is not None
    dist.summary(levels, y, entropy=True, interval_level=0.8)


def make_example(name: str) -> ParametricDistribution:
    """Make two distributions of a class of this package, one with a very large mean."""
    kind = getattr(distributions, name)
    large = torch.tensor([3.0, 1e9], dtype=torch.float64)
    if kind is distributions.Discretized:
        return kind(torch.distributions.Normal(large, 0.5 * large))
    values = {"total": 4.0 * large}
    return kind(
        **{name: values.get(name, large if name == "mu" else torch.ones_like(large)) for name in kind.arg_constraints}
    )


def main() -> None:
    """Compile kernels in parallel processes."""
    families = DEFAULT_FAMILIES
    if "all" in sys.argv[1:]:
        families = [name for name in distributions.__all__ if hasattr(getattr(distributions, name), "family")]
    first, *others = families
    compile_kernels(first)  # with the kernels that all families share
    # Processes are forked where that is possible: they need not import or compile anything again.
    Parallel(n_jobs=-1, backend="multiprocessing")(map(delayed(compile_kernels), others))


if __name__ == "__main__":
    main()

"""`python -m ddpn.distributions` compiles all kernels, so that no later process waits for it."""

from typing import Any

import torch
from joblib import Parallel, delayed

from ddpn import distributions
from ddpn.distributions.kernels import compiling


def compile_kernels(name: str) -> None:
    """Compile all kernels of a family, by calling them for a distribution of ordinary and one of very large counts."""
    compiling.announced.append(True)
    dist = make_example(getattr(distributions, name))
    y = torch.tensor([3.0, 3.0], dtype=torch.float64)
    levels = torch.tensor([0.5], dtype=torch.float64)
    distributions.log_mass(dist, 1.0, 5.0)
    for value in (dist.log_prob(y), dist.float32_log_prob(y), dist.cdf(y), dist.bracket(37.0), dist.information()):
        assert value is not None
    assert (dist.variance > 0.0).all()
    if hasattr(dist, "from_moments"):
        dist.from_moments(3.0, 2.0)
    dist.summary(levels, y, entropy=True, interval_level=0.8)


def make_example(kind: Any) -> Any:
    """Make two distributions of a class, with three or fewer parameters."""
    large = torch.tensor([3.0, 1e9], dtype=torch.float64)
    if kind is distributions.Discretized:
        return kind(torch.distributions.Normal(large, 0.5 * large))
    values = {"total": 4.0 * large}
    return kind(
        **{name: values.get(name, large if name == "mu" else torch.ones_like(large)) for name in kind.arg_constraints}
    )


def main() -> None:
    """Compile everything, in as many processes as there are processors."""
    families = [name for name in distributions.__all__ if hasattr(getattr(distributions, name), "family")]
    # Processes are forked where that is possible: they need not import anything again.
    Parallel(n_jobs=-1, backend="multiprocessing")(map(delayed(compile_kernels), families))


if __name__ == "__main__":
    main()

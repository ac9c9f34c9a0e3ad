"""`python -m ddpn.distributions` compiles all kernels, so that no later process waits for it."""

from joblib import Parallel, delayed

from ddpn import distributions
from ddpn.distributions import components, normalizer_table
from ddpn.distributions.kernels import compiling


def compile_one(name: str) -> None:
    """Compile a loop over rows, the table of normalisers or the kernels of a family, unless they are on disk."""
    compiling.announced.append(True)
    if name in components.SIGNATURES:
        components.kernel(name)
    elif name == "normalizer_table":
        normalizer_table.kernel()
    else:
        getattr(distributions, name).family.address  # noqa: B018


def main() -> None:
    """Compile everything, in as many processes as there are processors; those that take longest come first."""
    families = [name for name in distributions.__all__ if hasattr(getattr(distributions, name), "family")]
    names = [*reversed(components.SIGNATURES), "normalizer_table", *families]
    # Processes are forked where that is possible: they need not import anything again.
    Parallel(n_jobs=-1, backend="multiprocessing")(map(delayed(compile_one), names))


if __name__ == "__main__":
    main()

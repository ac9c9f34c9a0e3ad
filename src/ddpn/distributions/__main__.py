"""`python -m ddpn.distributions` compiles all kernels, so that no later process waits for it."""

from joblib import Parallel, delayed

from ddpn import distributions
from ddpn.distributions import components, normalizer_table
from ddpn.distributions.kernels import compiling


def compile_loops() -> None:
    """Compile the loops over rows, unless they are on disk."""
    compiling.announced.append(True)
    for name in components.SIGNATURES:
        components.kernel(name)


def compile_families() -> None:
    """Compile the kernels of all families and the table of normalisers, unless they are on disk."""
    compiling.announced.append(True)
    normalizer_table.kernel()
    for name in distributions.__all__:
        if hasattr(kind := getattr(distributions, name), "family"):
            kind.family.address  # noqa: B018


def main() -> None:
    """Compile everything in two processes: what one of them compiles has many functions in common."""
    Parallel(n_jobs=2)([delayed(compile_loops)(), delayed(compile_families)()])


if __name__ == "__main__":
    main()

"""`python -m ddpn.distributions` compiles all kernels, so that no later process waits for it."""

from ddpn.distributions import (
    ConwayMaxwellPoisson,
    Discretized,
    DoubleBinomial,
    DoublePoisson,
    GeneralizedPoisson,
    NegativeBinomial,
    Poisson,
    components,
    normalizer_table,
)


def main() -> None:
    """Compile what is not on disk yet."""
    components.compile_all()
    normalizer_table.kernel()
    kinds = (
        Poisson,
        DoublePoisson,
        NegativeBinomial,
        GeneralizedPoisson,
        ConwayMaxwellPoisson,
        DoubleBinomial,
        Discretized,
    )
    for kind in kinds:
        kind.family.address  # noqa: B018


if __name__ == "__main__":
    main()

"""Heads: from a network's raw outputs to a distribution, and the objective that trains it.

A new likelihood is one new file and one line in `likelihoods.py`, or `HEADS["name"] = MyHead` in a program of yours.
Importing this package, listing the names in `HEADS` and `name in HEADS` import no torch; a head is imported on first
use.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ddpn.networks.heads.likelihoods import DEFAULT_LIKELIHOOD, HEADS, SHIPPED
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.validation import check_choice, check_integer, check_keys

if TYPE_CHECKING:
    from ddpn.networks.heads.double_binomial import DoubleBinomialHead
    from ddpn.networks.heads.double_poisson import DoublePoissonHead
    from ddpn.networks.heads.gaussian import FaithfulGaussianHead, GaussianHead, NaturalGaussianHead
    from ddpn.networks.heads.head import Head
    from ddpn.networks.heads.mixed import MixedHead
    from ddpn.networks.heads.rates import (
        ConwayMaxwellPoissonHead,
        GeneralizedPoissonHead,
        NegativeBinomialHead,
        PoissonHead,
    )
    from ddpn.networks.heads.zeros import (
        HurdleDoublePoissonHead,
        HurdleNegativeBinomialHead,
        HurdlePoissonHead,
        ZeroInflatedDoublePoissonHead,
        ZeroInflatedNegativeBinomialHead,
        ZeroInflatedPoissonHead,
    )

__all__ = [
    "DEFAULT_LIKELIHOOD",
    "HEADS",
    "ConwayMaxwellPoissonHead",
    "DoubleBinomialHead",
    "DoublePoissonHead",
    "FaithfulGaussianHead",
    "GaussianHead",
    "GeneralizedPoissonHead",
    "Head",
    "HurdleDoublePoissonHead",
    "HurdleNegativeBinomialHead",
    "HurdlePoissonHead",
    "MixedHead",
    "NaturalGaussianHead",
    "NegativeBinomialHead",
    "PoissonHead",
    "ZeroInflatedDoublePoissonHead",
    "ZeroInflatedNegativeBinomialHead",
    "ZeroInflatedPoissonHead",
    "check_likelihood",
    "make_head",
]

#: Module of each class that is imported on first use.
_MODULES = {cls: module for module, _, cls in (entry.partition(":") for entry in SHIPPED.values())}
_MODULES["Head"] = "ddpn.networks.heads.head"


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def make_head(likelihood: str | Sequence[str], **options: Any) -> "Head":
    """Make the head of a likelihood.

    Parameters
    ----------
    likelihood : str or sequence of str
        A name in `HEADS`. Several names make a mixture of these families per row.
    **options
        Options of the head, see its class. `components=K`, an option of every likelihood of counts, makes a mixture of
        K distributions of that family.

    Examples
    --------
    >>> make_head("double_poisson", beta=0.5)
    DoublePoissonHead(beta=0.5, objective='exact', gamma='per_row', initial_gamma=None)
    >>> make_head("poisson", components=2)
    MixedHead(families=('poisson', 'poisson'))
    """
    if not isinstance(likelihood, str):
        return make_head("mixed", families=tuple(likelihood), **options)
    head = HEADS.find(likelihood)
    components = options.pop("components", 1)
    if likelihood == "mixed" and (components != 1 or not options.keys() <= {"families"}):
        _refuse_options_of_one(options, components)
    check_keys(options, head.option_defaults(), f"the options of {likelihood}")
    if check_integer("components", components, 1) == 1:
        return head(**options)
    if options:
        raise ConfigError(f"components cannot be combined with {next(iter(options))}. Leave one of them out.")
    return HEADS["mixed"](families=(likelihood,) * components)


def _refuse_options_of_one(options: Mapping[str, Any], components: Any) -> None:
    """Raise a `ConfigError` for options that need a likelihood of one family, where the likelihood is "mixed"."""
    single = {"components", *HEADS["double_poisson"].option_defaults()}
    given = ["components"] * (components != 1) + [name for name in options if name in single]
    if given:
        raise ConfigError(
            f'{given[0]} needs a single likelihood, got mixed. Name one, such as likelihood="double_poisson".'
        )


def check_likelihood(likelihood: Any) -> tuple[str, ...]:
    """The names of a likelihood, one or several; raises a `ConfigError` for an unknown one. Imports no torch."""
    names = (likelihood,) if isinstance(likelihood, str) or not isinstance(likelihood, Sequence) else tuple(likelihood)
    if not names:
        raise ConfigError("likelihood must name at least one distribution, got an empty list.")
    return tuple(check_choice("likelihood", name, HEADS) for name in names)

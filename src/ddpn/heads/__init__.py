"""Heads: from a network's raw outputs to a distribution, and the objective that trains it.

A new likelihood is one new file and one line in `_SHIPPED`, or `HEADS["name"] = MyHead` in a program of yours.
Importing this package, listing the names in `HEADS` and `name in HEADS` import no torch; a head is imported on first
use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ddpn.registry import Registry
from ddpn.validation import check_keys

if TYPE_CHECKING:
    from ddpn.heads.double_poisson import DoublePoissonHead
    from ddpn.heads.gaussian import FaithfulGaussianHead, GaussianHead, NaturalGaussianHead
    from ddpn.heads.head import Head
    from ddpn.heads.negative_binomial import NegativeBinomialHead
    from ddpn.heads.poisson import PoissonHead

__all__ = [
    "HEADS",
    "DoublePoissonHead",
    "FaithfulGaussianHead",
    "GaussianHead",
    "Head",
    "NaturalGaussianHead",
    "NegativeBinomialHead",
    "PoissonHead",
    "make_head",
]

#: The likelihoods of this package: name -> "module:class".
_SHIPPED = {
    "double_poisson": "ddpn.heads.double_poisson:DoublePoissonHead",
    "poisson": "ddpn.heads.poisson:PoissonHead",
    "negative_binomial": "ddpn.heads.negative_binomial:NegativeBinomialHead",
    "gaussian": "ddpn.heads.gaussian:GaussianHead",
    "faithful_gaussian": "ddpn.heads.gaussian:FaithfulGaussianHead",
    "natural_gaussian": "ddpn.heads.gaussian:NaturalGaussianHead",
}
#: Every likelihood that can be named, with those that users add: name -> subclass of `Head`.
HEADS = Registry("likelihood", _SHIPPED)
#: Module of each class that is imported on first use.
_MODULES = {cls: module for module, _, cls in (entry.partition(":") for entry in _SHIPPED.values())}
_MODULES["Head"] = "ddpn.heads.head"


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def make_head(name: str, **options: Any) -> "Head":
    """Return the head called `name` with these options.

    >>> make_head("double_poisson", beta=0.5)
    DoublePoissonHead(beta=0.5, objective='exact', gamma='per_row', initial_gamma=None)
    """
    head = HEADS.find(name)
    check_keys(options, head.option_defaults(), f"the options of {name}")
    return head(**options)

"""Heads: from a network's raw outputs to a distribution, and the objective that trains it.

A new likelihood is one new file and one line in `HEADS`, or `HEADS["name"] = MyHead` in a program of yours. Importing
this package, listing the names in `HEADS` and `name in HEADS` import no torch; a head is imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ddpn.heads.likelihoods import HEADS, SHIPPED, make_head

if TYPE_CHECKING:
    from ddpn.heads.double_poisson import DoublePoissonHead
    from ddpn.heads.faithful_gaussian import FaithfulGaussianHead
    from ddpn.heads.gaussian import GaussianHead
    from ddpn.heads.head import Head
    from ddpn.heads.natural_gaussian import NaturalGaussianHead
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

#: Module of each name that is imported on first use.
_LATER = {cls: module for module, _, cls in (entry.partition(":") for entry in SHIPPED.values())}
_LATER["Head"] = "ddpn.heads.head"


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""The registry of likelihoods. Imports no torch."""

from typing import TYPE_CHECKING, Any

from ddpn.registry import Registry
from ddpn.validation import check_keys

if TYPE_CHECKING:
    from ddpn.heads.head import Head

#: The likelihoods of this package: name -> "module:class".
SHIPPED = {
    "double_poisson": "ddpn.heads.double_poisson:DoublePoissonHead",
    "poisson": "ddpn.heads.poisson:PoissonHead",
    "negative_binomial": "ddpn.heads.negative_binomial:NegativeBinomialHead",
    "gaussian": "ddpn.heads.gaussian:GaussianHead",
    "faithful_gaussian": "ddpn.heads.faithful_gaussian:FaithfulGaussianHead",
    "natural_gaussian": "ddpn.heads.natural_gaussian:NaturalGaussianHead",
}
#: Every likelihood that can be named, with those that users add: name -> subclass of `Head`.
HEADS = Registry("likelihood", SHIPPED)


def make_head(name: str, **options: Any) -> "Head":
    """Return the head called `name` with these options.

    >>> make_head("double_poisson", beta=0.5)
    DoublePoissonHead(beta=0.5, objective='exact', gamma='per_row', initial_gamma=None)
    """
    head = HEADS.find(name)
    check_keys(options, head.option_defaults(), f"the options of {name}")
    return head(**options)

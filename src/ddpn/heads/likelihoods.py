"""The registry of likelihoods. Imports no torch."""

from ddpn.registry import Registry

#: What networks predict by default; a GLM has one Double Poisson.
DEFAULT_LIKELIHOOD = "mixed"

#: The likelihoods of this package: name -> "module:class".
SHIPPED = {
    "double_poisson": "ddpn.heads.double_poisson:DoublePoissonHead",
    "poisson": "ddpn.heads.poisson:PoissonHead",
    "negative_binomial": "ddpn.heads.negative_binomial:NegativeBinomialHead",
    "gaussian": "ddpn.heads.gaussian:GaussianHead",
    "faithful_gaussian": "ddpn.heads.gaussian:FaithfulGaussianHead",
    "natural_gaussian": "ddpn.heads.gaussian:NaturalGaussianHead",
    "mixed": "ddpn.heads.mixed:MixedHead",
}
#: Every likelihood that can be named, with those that users add: name -> subclass of `Head`.
HEADS = Registry("likelihood", SHIPPED)

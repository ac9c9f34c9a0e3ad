"""The registry of likelihoods. Imports no torch."""

from ddpn.registry import Registry

#: What networks predict by default; a GLM has one Double Poisson.
DEFAULT_LIKELIHOOD = "mixed"

#: The likelihoods of this package: name -> "module:class".
SHIPPED = {
    "double_poisson": "ddpn.heads.double_poisson:DoublePoissonHead",
    "poisson": "ddpn.heads.poisson:PoissonHead",
    "negative_binomial": "ddpn.heads.negative_binomial:NegativeBinomialHead",
    "conway_maxwell_poisson": "ddpn.heads.conway_maxwell_poisson:ConwayMaxwellPoissonHead",
    "generalized_poisson": "ddpn.heads.generalized_poisson:GeneralizedPoissonHead",
    "double_binomial": "ddpn.heads.double_binomial:DoubleBinomialHead",
    "gaussian": "ddpn.heads.gaussian:GaussianHead",
    "faithful_gaussian": "ddpn.heads.gaussian:FaithfulGaussianHead",
    "natural_gaussian": "ddpn.heads.gaussian:NaturalGaussianHead",
    "zero_inflated_poisson": "ddpn.heads.zeros:ZeroInflatedPoissonHead",
    "zero_inflated_negative_binomial": "ddpn.heads.zeros:ZeroInflatedNegativeBinomialHead",
    "zero_inflated_double_poisson": "ddpn.heads.zeros:ZeroInflatedDoublePoissonHead",
    "hurdle_poisson": "ddpn.heads.zeros:HurdlePoissonHead",
    "hurdle_negative_binomial": "ddpn.heads.zeros:HurdleNegativeBinomialHead",
    "hurdle_double_poisson": "ddpn.heads.zeros:HurdleDoublePoissonHead",
    "mixed": "ddpn.heads.mixed:MixedHead",
}
#: Likelihoods of counts of a known total.
TOTALS = ("double_binomial",)
#: Every likelihood that can be named, with those that users add: name -> subclass of `Head`.
HEADS = Registry("likelihood", SHIPPED)

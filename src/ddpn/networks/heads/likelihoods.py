"""The registry of likelihoods. Imports no torch."""

from ddpn.runtime.validation import Registry

#: What networks predict by default; a GLM has one Double Poisson.
DEFAULT_LIKELIHOOD = "mixed"

#: The likelihoods of this package: name -> "module:class".
SHIPPED = {
    "double_poisson": "ddpn.networks.heads.double_poisson:DoublePoissonHead",
    "poisson": "ddpn.networks.heads.rates:PoissonHead",
    "negative_binomial": "ddpn.networks.heads.rates:NegativeBinomialHead",
    "conway_maxwell_poisson": "ddpn.networks.heads.rates:ConwayMaxwellPoissonHead",
    "generalized_poisson": "ddpn.networks.heads.rates:GeneralizedPoissonHead",
    "double_binomial": "ddpn.networks.heads.double_binomial:DoubleBinomialHead",
    "gaussian": "ddpn.networks.heads.gaussian:GaussianHead",
    "faithful_gaussian": "ddpn.networks.heads.gaussian:FaithfulGaussianHead",
    "natural_gaussian": "ddpn.networks.heads.gaussian:NaturalGaussianHead",
    "zero_inflated_poisson": "ddpn.networks.heads.zeros:ZeroInflatedPoissonHead",
    "zero_inflated_negative_binomial": "ddpn.networks.heads.zeros:ZeroInflatedNegativeBinomialHead",
    "zero_inflated_double_poisson": "ddpn.networks.heads.zeros:ZeroInflatedDoublePoissonHead",
    "hurdle_poisson": "ddpn.networks.heads.zeros:HurdlePoissonHead",
    "hurdle_negative_binomial": "ddpn.networks.heads.zeros:HurdleNegativeBinomialHead",
    "hurdle_double_poisson": "ddpn.networks.heads.zeros:HurdleDoublePoissonHead",
    "mixed": "ddpn.networks.heads.mixed:MixedHead",
}
#: What each of them suits, in the order of a listing: those for a first try come first.
DESCRIPTIONS = {
    "mixed": "Any counts: two Double Poissons and a Negative Binomial, mixed per row.",
    "double_poisson": "Over- and under-dispersed counts: one distribution per row.",
    "negative_binomial": "Over-dispersed counts with a heavy upper tail.",
    "poisson": "Counts of independent events (variance = mean); a baseline.",
    "double_binomial": "k of n with n known: needs an upper bound or an exposure.",
    "zero_inflated_poisson": "More zeros than a Poisson has, as some rows can only be 0.",
    "zero_inflated_negative_binomial": "The same, and the other rows are over-dispersed.",
    "zero_inflated_double_poisson": "The same, with any dispersion of the other rows.",
    "hurdle_poisson": "Whether and how often are two questions; many or few zeros.",
    "hurdle_negative_binomial": "The same, with over-dispersed positive counts.",
    "hurdle_double_poisson": "The same, with any dispersion of the positive counts.",
    "conway_maxwell_poisson": "To compare with double_poisson; slower.",
    "generalized_poisson": "To compare with negative_binomial.",
    "gaussian": "To compare with regression on real numbers; not a distribution of counts.",
    "faithful_gaussian": "The same, trained so that the variance does not disturb the mean.",
    "natural_gaussian": "The same, in natural parameters.",
}
#: Likelihoods of counts of a known total.
TOTALS = ("double_binomial",)
#: Every likelihood that can be named, with those that users add: name -> subclass of `Head`.
HEADS = Registry("likelihood", SHIPPED)

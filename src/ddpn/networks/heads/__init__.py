"""Heads: each converts the outputs of a network to a distribution and defines the training objective.

A head implements a likelihood. To add one, write a subclass of `Head` and register it: add it to `SHIPPED` in this
file, or set `HEADS["name"] = MyHead` in your program. Heads are imported on first use, so importing this package and
listing `HEADS` do not import torch.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ddpn.runtime.errors import ConfigError
from ddpn.runtime.extras import import_on_use
from ddpn.runtime.validation import Registry, check_choice, check_integer, find_similar_name, join_words

if TYPE_CHECKING:
    from ddpn.networks.heads.head import Head

__all__ = ["DEFAULT_LIKELIHOOD", "HEADS", "Head", "check_likelihood", "load_head", "make_head"]

#: The default likelihood of networks. The default of a GLM is a single Double Poisson.
DEFAULT_LIKELIHOOD = "mixed"

#: The likelihoods of ddpn: name -> "module:class".
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
#: Likelihoods of counts "k of n" with a known total n.
TOTALS = ("double_binomial",)
#: All likelihoods, including those that users add: name -> subclass of `Head`.
HEADS = Registry("likelihood", SHIPPED, "ddpn.networks.heads.HEADS")

#: The module of each class that is imported on first use.
_MODULES = {cls: module for module, _, cls in (entry.partition(":") for entry in SHIPPED.values())}
_MODULES["Head"] = "ddpn.networks.heads.head"
__getattr__ = import_on_use(__name__, _MODULES)


def make_head(likelihood: str | Sequence[str], **options: Any) -> "Head":
    """Create the head of a likelihood.

    Parameters
    ----------
    likelihood : str or sequence of str
        A name in `HEADS`. Several names mean a mixture of these families in every row.
    **options
        Options of the head, which its class documents. Every likelihood of counts also has the option `components=K`,
        for a mixture of K distributions of its family.

    Examples
    --------
    >>> make_head("double_poisson", beta=0.5)
    DoublePoissonHead(beta=0.5, objective='exact', location='mu')
    >>> make_head("poisson", components=2)
    MixedHead(families=('poisson', 'poisson'))
    """
    if not isinstance(likelihood, str):
        return make_head("mixed", families=tuple(likelihood), **options)
    head = HEADS.find(likelihood)
    _check_head_class(likelihood, head)
    components, option_names = (
        check_integer("components", options.pop("components", 1), 1),
        list(head.option_defaults()),
    )
    for name in [*options, "components"] if components > 1 else options:
        if likelihood == "mixed" and name in {"components", *HEADS["double_poisson"].option_defaults()}:
            remedy = 'Name one, such as `likelihood="double_poisson"`.'
            raise ConfigError("needs a single likelihood", argument=name, got="mixed", remedy=remedy)
        if name not in {"components", *option_names}:
            close = find_similar_name(name, option_names)
            remedy = (
                f"Did you mean {close!r}?"
                if close
                else f"Its options are: {join_words(option_names)}."
                if option_names
                else ""
            )
            raise ConfigError(f"is not an option of the likelihood {likelihood}", argument=name, remedy=remedy)
    if components == 1:
        instance = head(**options)
        _check_outputs(instance)
        return instance
    if options:
        what = f"cannot be combined with `{next(iter(options))}`"
        raise ConfigError(what, argument="components", remedy="Leave one of them out.")
    return HEADS["mixed"](families=(likelihood,) * components)


def _check_head_class(likelihood: str, head: object) -> None:
    """Raise a `ConfigError` if what is registered as `likelihood` is no class of heads, or lacks an attribute."""
    entry = f"HEADS['{likelihood}']"
    if not isinstance(head, type):
        raise ConfigError(f"{entry} must be a class, got an object of {type(head).__name__}. Register its class.")
    for attribute, example in (("name", repr(likelihood)), ("n_raw", "2")):
        if not hasattr(head, attribute):
            raise ConfigError(
                f"{entry} is {head.__name__}, which has no `{attribute}`. Set it in the class, such as "
                f"{attribute} = {example}."
            )
    name = getattr(head, "name")  # noqa: B009
    if name != likelihood:
        raise ConfigError(
            f"{entry} is {head.__name__}, whose name is '{name}'. Register it as HEADS['{name}'], so that a saved "
            "model finds it."
        )


def _check_outputs(head: "Head") -> None:
    """Raise a `ConfigError` if attributes of a head do not fit its number of raw outputs."""
    kind, n_raw, names = type(head).__name__, head.n_raw, head.parameter_names
    if len(names) != n_raw:
        raise ConfigError(f"{kind}.parameter_names must have one name per raw output ({n_raw}), got {names!r}.")
    if not set(head.dispersion_outputs) <= set(range(n_raw)):
        raise ConfigError(
            f"{kind}.dispersion_outputs must be positions of raw outputs, from 0 to {n_raw - 1}, got "
            f"{head.dispersion_outputs!r}."
        )


def load_head(likelihood: str, options: Mapping[str, Any]) -> "Head":
    """Create the head of a saved model from the name of its likelihood and its options, as in `make_head`.

    An `InputError` is raised if the likelihood, or one of the families that it mixes, is not registered in `HEADS`.
    """
    for name in (likelihood, *options.get("families", ())):
        HEADS.find_saved(name)
    return make_head(likelihood, **options)


def check_likelihood(likelihood: Any) -> tuple[str, ...]:
    """Validate a likelihood, one name or a list of names, and return it as a tuple of names. Import no torch.

    Raise a `ConfigError` for names that are not in `HEADS`.
    """
    names = (likelihood,) if isinstance(likelihood, str) or not isinstance(likelihood, Sequence) else tuple(likelihood)
    if not names:
        raise ConfigError(argument="likelihood", must="name at least one distribution", got="an empty list")
    return tuple(check_choice("likelihood", name, HEADS) for name in names)

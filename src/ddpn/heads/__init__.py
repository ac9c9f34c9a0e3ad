"""Heads: from a network's raw numbers to a law, and the objective that trains it.

A new likelihood is one new file and one line in `HEADS`.
"""

from difflib import get_close_matches
from typing import Any

from ddpn.errors import ConfigError
from ddpn.heads.double_poisson import DoublePoissonHead
from ddpn.heads.faithful_gaussian import FaithfulGaussianHead
from ddpn.heads.gaussian import GaussianHead
from ddpn.heads.head import Head, option_names
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

HEADS: dict[str, type[Head]] = {
    "double_poisson": DoublePoissonHead,
    "poisson": PoissonHead,
    "negative_binomial": NegativeBinomialHead,
    "gaussian": GaussianHead,
    "faithful_gaussian": FaithfulGaussianHead,
    "natural_gaussian": NaturalGaussianHead,
}


def make_head(name: str, **options: Any) -> Head:
    """The head of that name.

    >>> make_head("double_poisson", beta=0.5)
    DoublePoissonHead(beta=0.5, objective='exact', gamma='per_row', initial_gamma=None)
    """
    if name not in HEADS:
        raise ConfigError(f"head must be one of {', '.join(HEADS)}, got {name!r}. {_suggestion(name, list(HEADS))}")
    known = option_names(HEADS[name])
    for option in options:
        if option not in known:
            allowed = f"one of {', '.join(known)}" if known else "left out, as this head has none"
            remedy = _suggestion(option, list(known))
            raise ConfigError(f"options of {name} must be {allowed}, got {option!r}. {remedy}")
    return HEADS[name](**options)


def _suggestion(word: Any, known: list[str]) -> str:
    close = get_close_matches(str(word), known, n=1)
    if close:
        return f"Did you mean {close[0]!r}?"
    return "Choose one of these." if known else "Drop it."

"""Test that bad arguments get one sentence with name, value, position and a remedy."""

import math
import re

import pytest
import torch

from ddpn import DoublePoisson, InputError, NegativeBinomial, Poisson

MAKERS = {
    "DoublePoisson": lambda mu=2.0, gamma=0.5, **kw: DoublePoisson(mu, gamma, **kw),
    "Poisson": lambda mu=2.0, **kw: Poisson(mu, **kw),
    "NegativeBinomial": lambda mu=2.0, alpha=0.5, **kw: NegativeBinomial(mu, alpha, **kw),
}
PARAMETERS = [("DoublePoisson", "mu"), ("DoublePoisson", "gamma"), ("Poisson", "mu")]
PARAMETERS += [("NegativeBinomial", "mu"), ("NegativeBinomial", "alpha")]


def assert_one_sentence_and_a_remedy(pattern: str, error: pytest.ExceptionInfo) -> None:
    """Assert that the message is `pattern`, a full stop, and one more sentence."""
    assert re.fullmatch(pattern + r"\. [A-Z][^.\n]+\.", str(error.value)), str(error.value)


@pytest.mark.parametrize(("kind", "name"), PARAMETERS)
@pytest.mark.parametrize("bad", [0.0, -1.5, math.nan, math.inf, -math.inf])
class TestParameters:
    def test_a_bad_value_in_a_batch_is_named_with_its_position(self, kind, name, bad):
        with pytest.raises(InputError) as error:
            MAKERS[kind](**{name: torch.tensor([1.0, 3.0, bad, -7.0])})
        assert_one_sentence_and_a_remedy(rf"{name} must be finite and positive, got {bad:g} at 2", error)

    def test_a_bad_value_alone_is_named(self, kind, name, bad):
        with pytest.raises(InputError) as error:
            MAKERS[kind](**{name: bad})
        assert_one_sentence_and_a_remedy(rf"{name} must be finite and positive, got {bad:g}", error)

    def test_bad_values_pass_without_validation(self, kind, name, bad):
        dist = MAKERS[kind](**{name: torch.tensor([1.0, bad])}, validate_args=False)
        assert dist.log_prob(torch.tensor([2.5, 3.0])).shape == (2,)


@pytest.mark.parametrize(
    ("make", "names"), [(DoublePoisson, "mu (3,) and gamma (2,)"), (NegativeBinomial, "mu (3,) and alpha (2,)")]
)
def test_parameters_that_do_not_broadcast_are_refused(make, names):
    with pytest.raises(InputError) as error:
        make(torch.ones(3), torch.ones(2))
    assert_one_sentence_and_a_remedy(re.escape(f"shapes must broadcast, got {names}"), error)


def test_moments_that_do_not_broadcast_are_refused():
    with pytest.raises(InputError) as error:
        DoublePoisson.from_moments(torch.ones(3), torch.ones(2))
    assert_one_sentence_and_a_remedy(re.escape("shapes must broadcast, got mean (3,) and variance (2,)"), error)


@pytest.mark.parametrize("name", ["mean", "variance"])
@pytest.mark.parametrize("bad", [0.0, -2.0, math.nan, math.inf])
def test_bad_moments_are_refused(name, bad):
    good = {"mean": torch.ones(2), "variance": torch.ones(2)}
    with pytest.raises(InputError) as error:
        DoublePoisson.from_moments(**(good | {name: torch.tensor([1.0, bad])}))
    assert_one_sentence_and_a_remedy(rf"{name} must be finite and positive, got {bad:g} at 1", error)


def test_complex_parameters_are_refused():
    with pytest.raises(InputError, match=r"^parameters must be real numbers, got dtype torch\.complex64\. Pass real"):
        DoublePoisson(torch.tensor(1.0 + 1.0j), 1.0)


def test_checks_outlive_expand():
    with pytest.raises(InputError, match="y must hold"):
        DoublePoisson(1.0, 1.0, validate_args=True).expand((3,)).cdf(torch.tensor(0.5))

"""Test the registry of heads: names without torch, options, and messages about wrong ones."""

import pytest
import torch

from ddpn.distributions import Poisson
from ddpn.networks.heads import HEADS, TOTALS, Head, make_head
from ddpn.runtime.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("double_poison", {}, "likelihood must be one of double_poisson, poisson, .*Did you mean 'double_poisson'"),
        ("xyz", {}, "mixed, got 'xyz'"),
        ("double_poisson", {"betta": 1}, "betta is not an option of the likelihood double_poisson. Did"),
        ("poisson", {"beta": 1}, "beta is not an option of the likelihood poisson."),
        ("gaussian", {"beta": 1.5}, r"beta must be a number in \[0, 1\], got 1.5"),
        ("double_poisson", {"beta": -0.1}, r"beta must be a number in \[0, 1\], got -0.1"),
        ("double_poisson", {"beta": "half"}, "beta must be a number"),
        ("double_poisson", {"objective": "Paper"}, "objective must be 'exact' or 'paper', got 'Paper'"),
    ],
)
def test_wrong_names_and_options_are_reported(name, options, message):
    with pytest.raises(ConfigError, match=message):
        make_head(name, **options)


def test_heads_say_whether_they_count_and_which_parameters_they_have():
    assert all(type(make_head(name)) is head and head.name == name for name, head in HEADS.items())
    counts = {name for name, head in HEADS.items() if head.is_count}
    real = {"gaussian", "faithful_gaussian", "natural_gaussian"}
    assert counts == set(HEADS) - real
    assert [name for name, head in HEADS.items() if head.exposure_is_total] == list(TOTALS)
    assert [name for name, head in HEADS.items() if not head.has_glm] == ["faithful_gaussian", "mixed"]
    assert HEADS["negative_binomial"].parameter_names == ("log mu", "log alpha")
    assert HEADS["natural_gaussian"].parameter_names == ("mean / variance", "log precision")


class LogRate(Head):
    """A Poisson with nothing but what a head must have.

    More about it.
    """

    name = "log_rate"
    n_raw = 1

    def forward(self, raw: torch.Tensor, exposure: torch.Tensor | None = None) -> Poisson:
        rate = raw[..., 0].exp()
        return Poisson(rate if exposure is None else rate * exposure)


def test_a_head_must_be_registered_under_its_name(monkeypatch):
    monkeypatch.setitem(HEADS, "other", LogRate)
    with pytest.raises(ConfigError, match=r"HEADS\['other'\] is LogRate, .* Register it as HEADS\['log_rate'\]"):
        make_head("other")


@pytest.mark.parametrize(
    ("attributes", "missing", "words"),
    [
        ({}, "name", r"HEADS\['wrong'\] is Wrong, which has no `name`. Set it in the class, such as name = 'wrong'"),
        ({}, "n_raw", r"HEADS\['wrong'\] is Wrong, which has no `n_raw`. Set it in the class, such as n_raw = 2"),
        ({"parameter_names": ()}, "", r"Wrong\.parameter_names must have one name per raw output \(1\), got \(\)"),
        ({"dispersion_outputs": (1,)}, "", r"Wrong\.dispersion_outputs must be positions .* 0 to 0, got \(1,\)"),
    ],
    ids=["name", "n_raw", "parameter_names", "dispersion_outputs"],
)
def test_a_head_with_a_missing_or_wrong_attribute_is_refused(monkeypatch, attributes, missing, words):
    complete = {"name": "wrong", "n_raw": 1, "forward": LogRate.forward} | attributes
    wrong = type("Wrong", (Head,), {name: value for name, value in complete.items() if name != missing})
    monkeypatch.setitem(HEADS, "wrong", wrong)
    with pytest.raises(ConfigError, match=words):
        make_head("wrong")


def test_an_object_in_place_of_a_class_is_refused(monkeypatch):
    monkeypatch.setitem(HEADS, "log_rate", LogRate())
    with pytest.raises(ConfigError, match="must be a class, got an object of LogRate"):
        make_head("log_rate")


def test_the_old_name_of_projection_inputs_is_refused():
    with pytest.raises(TypeError, match=r"Old\.sees is called projection_inputs since ddpn 0\.4"):

        class Old(LogRate):
            sees = ("features",)


def test_only_heads_that_ask_for_it_are_candidates_of_the_constant():
    assert not LogRate.is_baseline
    assert [name for name, head in HEADS.items() if head.is_baseline] == [
        "double_poisson",
        "poisson",
        "negative_binomial",
    ]


def test_a_minimal_head_has_defaults_for_the_rest():
    assert LogRate.parameter_names == ("raw 0",)
    assert LogRate.is_count
    assert LogRate.has_glm
    assert LogRate().projection_inputs == ("features",)
    y, exposure = torch.tensor([0, 3, 4, 1]), torch.tensor([1.0, 2.0, 2.0, 0.5])
    minimal, shipped = LogRate(), make_head("poisson")
    raw = torch.tensor([0.3])
    torch.testing.assert_close(minimal.loss(raw, y, exposure), shipped.loss(raw, y, exposure), rtol=1e-6, atol=0)
    torch.testing.assert_close(minimal.start(y, None, exposure), shipped.start(y, None, exposure), rtol=0, atol=1e-6)

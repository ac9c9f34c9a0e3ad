"""What fit refuses: options and data, each with its sentence, before anything is trained."""

import numpy as np
import pytest

from ddpn import ConfigError, InputError

OPTIONS = [
    ("likelihood", "poison", "likelihood must be one of double_poisson, .*, got 'poison'"),
    ("beta", 1.5, r"beta must be a number in \[0, 1\], got 1.5"),
    ("objective", "exactly", "objective must be 'exact' or 'paper', got 'exactly'"),
    ("gamma", "row", "gamma must be 'per_row' or 'shared'"),
    ("initial_gamma", -1.0, "initial_gamma must be a finite, positive number, got -1"),
    ("members", 0, "members must be a whole number of at least 1, got 0"),
    ("members", 2.5, "members must be a whole number of at least 1, got 2.5"),
    ("members", True, "members must be a whole number of at least 1, got True"),
    ("hidden", 8, "hidden must list widths, got 8"),
    ("hidden", "wide", "hidden must list widths, got 'wide'"),
    ("hidden", (8.5,), r"hidden must list widths, got \(8.5,\)"),
    ("hidden", (8, 0), r"hidden must hold widths of at least 1, got \(8, 0\). Use \(\) for a linear model"),
    ("activation", "sin", "activation must be one of relu, .*, got .sin"),
    ("numeric", "bins", "numeric must be one of auto, standard, piecewise, steps, got 'bins'"),
    ("bins", 0, "bins must be an integer of at least 1, got 0"),
    ("epochs", 0, "epochs must be a whole number of at least 1, got 0"),
    ("epochs", "many", "epochs must be a whole number of at least 1, got 'many'"),
    ("batch_size", 0, "batch_size must be a whole number of at least 1, got 0"),
    ("batch_size", "big", "batch_size must be a whole number of at least 1, got 'big'"),
    ("lr", 0.0, "lr must be finite and positive, got 0.0"),
    ("lr", float("nan"), "lr must be finite and positive, got nan"),
    ("weight_decay", -1.0, "weight_decay must be finite and at least 0"),
    ("warmup", 1.0, r"warmup must lie in \[0, 1\), got 1.0"),
    ("schedule", "linear", "schedule must be one of cosine, constant, got 'linear'"),
    ("clip", 0.0, "clip must be None or positive, got 0.0"),
    ("ema", 1.0, r"ema must lie in \[0, 1\), got 1.0"),
    ("score_on", "mae", 'score_on must be "nll" or "crps", got \'mae\''),
    ("patience", 0, "patience must be None or at least 1, got 0"),
    ("validation", 1.0, r'validation must be "auto", None or lie in \[0, 1\), got 1.0'),
    ("validation", "some", r'validation must be "auto", None or lie in \[0, 1\), got \'some\''),
    ("validation", [0.1], r'validation must be "auto", None or lie in \[0, 1\), got \[0.1\]'),
    ("fractional", "floor", 'fractional must be "error" or "round", got \'floor\''),
    ("precision", "fp8", "precision must be float32 or bf16, got 'fp8'"),
    ("device", "tpu9", 'device must be one torch knows, got "tpu9"'),
]


@pytest.mark.parametrize("size", ["auto", "set"])
@pytest.mark.parametrize(("name", "value", "sentence"), OPTIONS, ids=lambda value: str(value)[:20])
def test_a_wrong_option_is_told_before_training(quick, counts, name, value, sentence, size):
    sizes = {"epochs": size, "batch_size": size} if size == "auto" else {}
    with pytest.raises(ConfigError, match=sentence):
        quick(**sizes | {name: value}).fit(*counts)


@pytest.mark.parametrize(
    ("likelihood", "option"),
    [("poisson", {"beta": 0.5}), ("gaussian", {"objective": "paper"}), ("negative_binomial", {"initial_gamma": 2.0})],
)
def test_an_option_of_another_likelihood_is_told(quick, counts, likelihood, option):
    (name,) = option
    with pytest.raises(ConfigError, match=f'{name} must be left at .* with likelihood="{likelihood}", .* Drop it'):
        quick(likelihood=likelihood, **option).fit(*counts)


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        (-1.0, "y must hold non-negative integers, got -1 at row 3"),
        (0.5, r"y must hold non-negative integers, got 0\.5 at row 3"),
        (np.nan, "y must be finite, got nan at row 3"),
        ("two", "y must hold numbers, got 'two' at row 3"),
    ],
)
def test_a_wrong_count_is_told_with_its_row(quick, counts, y, sentence):
    targets = counts[1].astype(object)
    targets[3] = y
    with pytest.raises(InputError, match=sentence):
        quick().fit(counts[0], targets)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"exposure": 0.0}, "exposure must be finite and positive, got 0 at row 0"),
        ({"exposure": np.full(90, -2.0)}, "exposure must be finite and positive, got -2 at row 0"),
        ({"exposure": np.ones(89)}, r"exposure must have one value a row of X, got shape \(89,\) for 90 rows"),
        ({"sample_weight": np.ones(89)}, r"sample_weight must have one value a row of X, got shape \(89,\)"),
        ({"sample_weight": np.full(90, -1.0)}, "sample_weight must be finite and not negative, got -1 at row 0"),
        ({"sample_weight": np.zeros(90)}, "sample_weight must be positive for some row, got zero weights only"),
        ({"y": np.ones(89)}, "y must have one count a row of X, got 89 counts and 90 rows"),
        ({"X": np.zeros((0, 3)), "y": []}, r"y must hold at least one count, got 0 sample\(s\)"),
        ({"X": np.zeros((90, 0))}, r"0 feature\(s\)"),
        ({"X": np.full((90, 3), np.inf)}, "Input X contains infinity"),
        ({"X": 5}, "X must be a table with rows, got int"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else value[:30],
)
def test_wrong_data_are_told(quick, counts, change, sentence):
    with pytest.raises(ValueError, match=sentence):
        quick().fit(**{"X": counts[0], "y": counts[1]} | change)

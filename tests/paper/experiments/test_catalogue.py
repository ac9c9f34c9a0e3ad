"""Test the catalogue: every file can be run as it is, and options of the command line change it."""

import copy
from typing import Any

import pytest

from ddpn import DDPNRegressor
from ddpn.members.network_options import make_paper_options
from ddpn.networks.backbones import BACKBONES
from ddpn.networks.heads import HEADS, Head
from ddpn.paper.datasets import DATASETS, SIMULATIONS
from ddpn.paper.experiments.catalogue import (
    list_names,
    parse_experiment,
    read_experiment,
    read_methods,
    read_reference,
    select_experiments,
)
from ddpn.paper.experiments.figures import FIGURES
from ddpn.paper.experiments.rows import LOADERS
from ddpn.runtime.errors import ConfigError

CONTENT = {
    "title": "A test",
    "paper": "none",
    "simulation": {"name": "wave"},
    "methods": ["ddpn", "poisson"],
    "minutes": 1,
    "training": {"epochs": 3, "batch_size": 32, "lr": 1e-3, "weight_decay": 0.0},
}


def change_content(*without, **changes):
    return {key: value for key, value in (copy.deepcopy(CONTENT) | changes).items() if key not in without}


def change_training(**changes):
    return change_content(training=CONTENT["training"] | changes)


@pytest.mark.parametrize("name", list_names())
def test_every_file_can_be_run(name):
    declared = read_experiment(name)
    assert declared.minutes > 0
    assert set(declared.figures) <= FIGURES.keys()
    assert all(isinstance(run.head, Head) for run in declared.runs())
    folders = [run.name for run in declared.runs()]
    assert len(set(folders)) == len(folders)
    assert all((run.training.epochs is None) != (run.training.steps is None) for run in declared.runs())
    assert not (declared.grid and any(method.exact for method in declared.methods)), "a GLM has nothing to vary"
    if declared.reference is not None:
        assert {method for _, method, _ in read_reference(**declared.reference)} <= read_methods().keys()
    if not declared.methods:
        return
    assert (declared.data is None) != (declared.simulation is None)
    if declared.simulation is not None:
        assert declared.simulation["name"] in SIMULATIONS
    else:
        assert declared.data["name"] in {*DATASETS, *LOADERS}
        assert (declared.backbone is not None) == (declared.data["name"] in LOADERS)
    if declared.backbone is not None:
        assert declared.backbone["name"] in BACKBONES


@pytest.mark.parametrize("settings", [{"n_networks": 0}, {"seed": -1}, {"seed": 10**22}], ids=str)
def test_settings_of_the_command_line_are_checked(settings):
    with pytest.raises(ConfigError, match=f"{next(iter(settings))} must be an integer"):
        select_experiments(["wave"], **settings)


def test_methods_use_every_head_of_the_paper():
    methods_by_name = read_methods()
    heads = {"double_poisson", "poisson", "negative_binomial"}
    heads |= {name for name in HEADS if "gaussian" in name}
    assert {method.head for method in methods_by_name.values()} == heads
    assert {name for name, method in methods_by_name.items() if method.is_continuous} == {
        name for name in methods_by_name if "gaussian" in name
    }


#: Arguments of `DDPNRegressor` for each method of the paper: the table of docs/api/estimators.md.
RECIPES: dict[str, dict[str, Any]] = {
    "ddpn": {},
    "beta_ddpn_0.5": {"head_options": {"beta": 0.5}},
    "beta_ddpn_1.0": {"head_options": {"beta": 1.0}},
    "poisson": {"likelihood": "poisson"},
    "negative_binomial": {"likelihood": "negative_binomial"},
    "gaussian": {"likelihood": "gaussian"},
    "beta_gaussian_0.5": {"likelihood": "gaussian", "head_options": {"beta": 0.5}},
    "beta_gaussian_1.0": {"likelihood": "gaussian", "head_options": {"beta": 1.0}},
    "faithful_gaussian": {"likelihood": "faithful_gaussian"},
    "natural_gaussian": {"likelihood": "natural_gaussian"},
}


@pytest.mark.parametrize("name", RECIPES)
def test_ddpn_regressor_is_every_method_of_the_paper(name):
    head, options, _ = DDPNRegressor(**RECIPES[name]).build_options()
    (run,) = (run for run in read_experiment("length-of-stay").runs() if run.method.name == name)
    assert (head.name, head.options) == (run.head.name, run.head.options)
    settings = run.training
    assert (options.n_networks, options.widths, options.score) == (settings.n_networks, settings.hidden, settings.score)
    assert (options.warmup, options.clip, options.ema, options.start) == (settings.warmup, None, 0.0, "random")


def test_the_settings_of_ddpn_regressor_are_those_of_the_experiments():
    for name, rows in (("wave", 800), ("length-of-stay", 80_000)):
        settings, options = read_experiment(name).training, make_paper_options(rows)
        assert options.epochs == settings.compute_epochs(rows)
        for setting in ("batch_size", "lr", "weight_decay"):
            assert getattr(options, setting) == getattr(settings, setting), (name, setting)


def test_length_of_stay_has_the_methods_of_the_paper_and_exact_glms():
    stays = read_experiment("length-of-stay")
    assert [m.exact for m in stays.methods] == [False] * 13 + [True] * 4
    assert [run.training.hidden for run in stays.runs()[:13]] == [(128, 128, 128, 64)] * 10 + [()] * 3
    dp_glm = stays.runs()[12]
    assert (dp_glm.method.label, dp_glm.projection_inputs) == ("DP GLM", ["features", "constant"])
    assert stays.training.score == "loss"
    assert stays.training.n_networks == 5
    # 15 epochs of 80,000 rows in batches of 128; the 16,000 rows of the sample are seen 75 times.
    assert stays.training.compute_epochs(80_000) == 15
    assert stays.training.compute_epochs(16_000) == 75


def test_a_grid_reaches_head_and_training():
    content = change_content(methods=["ddpn"], grid={"initial_gamma": [1.0, 10.0], "epochs": [2, 4]})
    runs = parse_experiment("test", content).runs()
    assert [run.name for run in runs] == [f"ddpn-initial_gamma={g}-epochs={e}" for g in ("1.0", "10.0") for e in (2, 4)]
    settings = [(run.training.initial_gamma, run.training.epochs) for run in runs]
    assert settings == [(1.0, 2), (1.0, 4), (10.0, 2), (10.0, 4)]
    (beta,) = parse_experiment("test", change_content(methods=["ddpn"], grid={"beta": [0.25]})).runs()
    assert beta.head.beta == 0.25


def test_a_quick_run_has_its_own_folder_and_a_tenth_of_the_steps():
    short = parse_experiment("test", change_training(epochs=200, n_networks=5)).quick()
    assert (short.name, short.training.epochs, short.training.n_networks) == ("test-quick", 20, 2)
    assert parse_experiment("test", change_content()).quick().training.epochs == 1
    assert read_experiment("beta").quick().training.snapshots == (20, 40, 60, 80)
    assert read_experiment("length-of-stay").quick().training.snapshots == ("crps",)
    assert parse_experiment("test", change_content(grid={"epochs": [200, 400]})).quick().grid == {"epochs": (20, 40)}
    assert read_experiment("gamma").quick().grid == read_experiment("gamma").grid


def test_all_is_every_experiment_once():
    # A view of another experiment is run with it.
    private = [name for name in list_names() if name.startswith("paper-")]
    assert private == ["paper-coco-people", "paper-inventory", "paper-reviews"]
    every = [name for name in list_names() if name not in ("ood", *private)]
    assert sorted(selected.name for selected in select_experiments(["wave", "all"])) == every
    assert sorted(selected.name for selected in select_experiments(["all", private[0]])) == sorted([*every, private[0]])
    assert [selected.name for selected in select_experiments(["wave", "wave"])] == ["wave"]


def test_a_method_must_be_in_one_of_the_experiments():
    assert len(select_experiments(["wave", "length-of-stay"], only=["poisson_glm"])) == 2
    with pytest.raises(ConfigError, match=r"method in `only` must be one of .*'poisson_glm'"):
        select_experiments(["wave"], only=["poisson_glm"])

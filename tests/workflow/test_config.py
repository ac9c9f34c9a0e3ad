"""Test settings from a file and from the command, which are checked before any work."""

import pytest

from ddpn.estimators import CountRegressor, DDPNRegressor
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.workflow.config import BASELINES, FitConfig, ModelConfig, read_config


@pytest.fixture
def write_settings(tmp_path):
    def write(text: str):
        path = tmp_path / "settings.toml"
        path.write_text(text)
        return path

    return write


TOML = """
target = "x"
n_networks = 9
hidden = [8, 4]
seed = 7
use = ["id"]
shares = [0.8, 0.1, 0.1]
mix_with = ["glm", "poisson_glm"]
compare_with = "constant, poisson_glm"

[head_options]
objective = "paper"
beta = 0.25

[training_options]
lr = 0.01
"""


def test_options_of_the_command_take_precedence_over_the_file(write_settings):
    plan = read_config(
        {"target": "y", "n_networks": 3, "seed": None, "drop": ["a, b,", "c"], "beta": 0.5}, write_settings(TOML)
    )
    model = {"n_networks": 3, "hidden": (8, 4), "mix_with": ("glm", "poisson_glm"), "training_options": {"lr": 0.01}}
    options = {"target": "y", "drop": ("a, b,", "c"), "use": ("id",), "seed": 7, "shares": (0.8, 0.1, 0.1)}
    head = {"head_options": {"objective": "paper", "beta": 0.25}, "beta": 0.5}
    assert plan == FitConfig(**options, compare_with=("constant", "poisson_glm"), **model, **head)
    head_options = {"objective": "paper", "beta": 0.5}
    assert plan.estimator_options == model | {"head_options": head_options, "fractional": "error"}
    assert FitConfig(**plan.as_dict()) == plan


def test_empty_lists_differ_from_defaults(write_settings):
    options = {"target": "y", "mix_with": "", "compare_with": ""}
    assert read_config(options) == FitConfig(target="y", compare_with=(), mix_with=())
    assert FitConfig(target="y").compare_with == BASELINES
    assert read_config({"target": "y"}, write_settings("beta = 0.5")).estimator_options["head_options"] == {"beta": 0.5}


@pytest.mark.parametrize(
    ("model", "mix_with"),
    [
        ({"n_networks": 3}, ("glm",)),
        ({"likelihood": "gaussian"}, ()),
        ({"likelihood": "faithful_gaussian"}, ()),
        ({"hidden": ()}, ()),
        ({"mix_with": ("constant",)}, ("constant",)),
    ],
)
def test_a_plan_makes_the_regressor(model, mix_with):
    regressor = FitConfig(target="y", seed=5, **model).regressor(verbose=True)
    assert (regressor.random_state, regressor.verbose, regressor.mix_with) == (5, True, mix_with)
    assert {name: getattr(regressor, name) for name in model} == model


def test_every_option_of_the_estimator_is_a_part_of_the_plan():
    arguments = {*CountRegressor().get_params(), *DDPNRegressor().get_params()}
    assert set(ModelConfig.model_fields) - {"components", "beta"} == set(FitConfig.model_fields) & arguments
    assert not {"checkpoint", "random_state", "validation", "verbose", "model", "lr"} & set(FitConfig.model_fields)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n_network = 3", ["Unknown key 'n_network' in", "settings.toml", "Did you mean 'n_networks'?"]),
        ("members = 3", ["Unknown key 'members' in", "settings.toml", "It is now called 'n_networks'."]),
        ("checkpoint = 'x'", ["Unknown key 'checkpoint'"]),
        ("lr = 0.1", ["Unknown key 'lr'", "[training_options]"]),
        ("[training_options]\nlrr = 0.1", ["Unknown key 'lrr' in training_options", "Did you mean 'lr'?"]),
        ("training_options = 3", ["training_options must be a table", "got 3"]),
        ("head_options = 3\nbeta = 0.5", ["head_options must be a table", "got 3"]),
        ("target = 3", ["target must be the name of a column", "got 3"]),
        ("drop = [1]", ["drop must be a list of names", "got [1]"]),
        ("mix_with = ['glmm']", ["mix_with must be one of", "got 'glmm'", "Did you mean 'glm'?"]),
        ("mix_with = 'networks'", ["mix_with must be one of", "got 'networks'"]),
        ("compare_with = ['glmm']", ["compare_with must be one of", "got 'glmm'", "Did you mean 'glm'?"]),
        ("likelihood = 'poison'", ["likelihood must be one of", "Did you mean 'poisson'?"]),
        ("likelihood = 'poisson,nb'", ["likelihood must be one of", "got 'nb'"]),
        ("likelihood = 5", ["likelihood must be one of", "got 5"]),
        ("n_networks = 0", ["n_networks must be an integer of at least 1", "got 0"]),
        ("hidden = 8", ["hidden must be"]),
        ("numeric = 'step'", ["numeric must be one of", "Did you mean 'steps'?"]),
        ("epochs = 0", ["epochs must be", "got 0"]),
        ("seed = -1", ["seed must be an integer from 0 to 2^32 - 1", "got -1"]),
        ("seed = true", ["seed must be an integer"]),
        ("shares = [0.5, 0.5]", ["shares must be three numbers that sum to 1", "got [0.5, 0.5]"]),
        ("shares = [0.9, 0.1, 0.0]", ["shares must be"]),
        ("time = 'a'\nsplit_column = 'b'", ["either `split_column` or `time`"]),
        ("weight = 'y'", ["'y' has more than one role"]),
        ("drop = ['y']", ["'y' has a role", "`drop` or `use`"]),
        ("group = ['y']", ["'y' has more than one role"]),
        ("interval_groups = 'y'", ["must not be the target"]),
        ("interval_groups = 5", ["interval_groups must be", "got 5"]),
        ("not toml", ["settings.toml is not valid TOML"]),
    ],
)
def test_wrong_settings_are_reported(write_settings, text, words):
    options = {} if text.startswith("target") else {"target": "y"}
    with pytest.raises(ConfigError) as error:
        read_config(options, write_settings(text))
    assert [word for word in words if word not in str(error.value)] == []


def test_a_target_is_needed():
    with pytest.raises(ConfigError, match=r"target is missing.*`target`"):
        read_config({"target": None})


def test_a_file_that_cannot_be_read_is_reported(tmp_path):
    with pytest.raises(InputError, match=r"File not found: .*none\.toml"):
        read_config({"target": "y"}, tmp_path / "none.toml")
    with pytest.raises(InputError, match="cannot be read as text"):
        read_config({"target": "y"}, tmp_path)


def test_a_mixture_of_unsuitable_families_is_found_before_the_table_is_read():
    plan = read_config({"target": "visits", "likelihood": "poisson,gaussian"})
    with pytest.raises(ConfigError, match=r"families must be likelihoods of unbounded counts.*'gaussian'"):
        plan.check_with_torch()
    read_config({"target": "visits", "likelihood": "poisson,negative_binomial"}).check_with_torch()


# Test rows


def test_a_test_size_divides_the_other_rows_and_asks_for_test_rows():
    assert FitConfig(target="y", test_size=0.4).split_shares == pytest.approx((0.525, 0.075, 0.4))
    assert FitConfig(target="y").split_shares == (0.7, 0.1, 0.2)
    for options in ({"test_size": 0.2}, {"shares": (0.5, 0.0, 0.5)}, {"time": "when"}, {"n_networks": 2}):
        plan = FitConfig(target="y", **options)
        assert plan.asks_for_test_rows
        assert plan.with_test_rows() is plan
    assert not FitConfig(target="y").asks_for_test_rows
    assert FitConfig(target="y").with_test_rows().asks_for_test_rows


@pytest.mark.parametrize("size", [0.0, 1.0, -0.1, "0.2", True, float("nan")])
def test_a_test_size_is_a_share(size):
    with pytest.raises(ConfigError, match="test_size must lie between 0 and 1"):
        FitConfig(target="y", test_size=size)


@pytest.mark.parametrize("other", [{"shares": (0.7, 0.1, 0.2)}, {"split_column": "part"}])
def test_a_test_size_beside_another_split_is_refused(other):
    with pytest.raises(ConfigError, match="Give either `test_size` or"):
        FitConfig(target="y", test_size=0.2, **other)

import pytest

from ddpn.runtime.errors import ConfigError, InputError
from ddpn.workflow.plan import Plan
from ddpn.workflow.search_space import (
    SETTINGS,
    Choices,
    Range,
    check_search,
    default_settings,
    make_space,
    model_value,
    text_of,
    with_settings,
)

PLAN = Plan(target="y")


def test_everything_is_searched_around_its_default():
    plan = Plan(target="y", model={"members": 2})
    defaults = default_settings(plan, SETTINGS)
    space = make_space(check_search(plan), defaults, 2000)
    assert list(space) == list(SETTINGS)
    for name, values in space.items():
        assert defaults[name] in values, name
        if isinstance(values, Choices):
            for value in values.values:  # each of them is a valid plan
                with_settings(plan, {name: value}).regressor().checked_options()


def test_what_has_a_value_is_not_searched():
    plan = Plan(target="y", model={"epochs": 3, "head_options": {"components": 2}, "likelihood": "poisson"})
    assert set(check_search(plan)) == set(SETTINGS) - {"epochs", "likelihood"}
    with pytest.raises(ConfigError) as error:
        check_search(plan, {"epochs": True})
    assert error.value.argument == "epochs"
    everything = {"hidden": (8,), "numeric": "standard", "epochs": 3, "likelihood": "poisson",
                  "training_options": {"lr": 0.1, "weight_decay": 0.1, "batch_size": 32}}  # fmt: skip
    with pytest.raises(ConfigError, match="Nothing is left"):
        check_search(Plan(target="y", model=everything))


def test_names_and_files_and_values(tmp_path):
    assert check_search(PLAN, " lr, hidden ") == {"lr": True, "hidden": True}
    file = tmp_path / "ranges.toml"
    file.write_text(
        'lr = [0.001, 0.01]\nhidden = [[64, 64], "32", "auto"]\nlikelihood = ["poisson", "double_poisson*3"]\n'
        "numeric = true\nepochs = [5, 10]\nbatch_size = [32]\n"
    )
    found = check_search(PLAN, str(file))
    assert found == {
        "lr": Range(0.001, 0.01), "hidden": Choices(("64-64", "32", "auto")), "numeric": True,
        "likelihood": Choices(("poisson", "double_poisson*3")),
        "epochs": Range(5, 10, True), "batch_size": Choices((32,)),
    }  # fmt: skip
    with pytest.raises(InputError, match="not found"):
        check_search(PLAN, tmp_path / "none.toml")
    file.write_text("lr = ")
    with pytest.raises(ConfigError, match="not valid TOML"):
        check_search(PLAN, str(file))


@pytest.mark.parametrize(
    ("search", "words"),
    [
        ("lrr", "Did you mean 'lr'?"),
        ("", "search must name"),
        (3, "search must name"),
        ({"lr": [1]}, "lr in search must be true"),
        ({"lr": [0.1, 0.01]}, "lr in search must be true"),
        ({"lr": [0, 0.01]}, "lr in search must be true"),
        ({"epochs": [1.5, 3]}, "epochs in search must be two integers"),
        ({"hidden": "64"}, "hidden in search must be true"),
        ({"hidden": ["64x64"]}, "hidden in search must hold widths"),
        ({"hidden": [[0]]}, "a width in hidden must be"),
        ({"numeric": ["stepz"]}, "Did you mean 'steps'?"),
        ({"likelihood": ["poison"]}, "Did you mean 'poisson'?"),
        ({"likelihood": ["poisson*x"]}, "likelihood in search must be NAME"),
        ({"batch_size": [0]}, "batch_size in search must be an integer"),
    ],
)
def test_bad_searches_are_one_sentence(search, words):
    with pytest.raises(ConfigError, match=r"^[^\n]*$") as error:
        check_search(PLAN, search)
    assert words in str(error.value)


def test_values_and_their_text():
    assert model_value("hidden", text_of("hidden", (64, 32))) == {"hidden": (64, 32)}
    assert model_value("hidden", text_of("hidden", ())) == {"hidden": ()}
    assert model_value("likelihood", "poisson+negative_binomial") == {"likelihood": ("poisson", "negative_binomial")}
    plan = Plan(target="y", model={"training_options": {"clip": 1.0}})
    model = with_settings(plan, {"lr": 0.1, "likelihood": "poisson*2", "epochs": 4}).model
    assert model == {"training_options": {"clip": 1.0, "lr": 0.1}, "likelihood": "poisson",
                     "head_options": {"components": 2}, "epochs": 4}  # fmt: skip

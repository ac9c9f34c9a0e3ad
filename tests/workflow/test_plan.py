"""Settings from a file and from the command, checked before any work."""

import pytest

from ddpn.errors import ConfigError, InputError
from ddpn.workflow.plan import Plan, keys, plan_from, plan_of


@pytest.fixture
def file(tmp_path):
    def write(text: str):
        path = tmp_path / "settings.toml"
        path.write_text(text)
        return path

    return write


def test_a_file_and_what_is_given_in_place_of_it(file):
    found = plan_of(
        {"target": "y", "members": 3, "seed": None, "drop": "a, b,"},
        file('target = "x"\nmembers = 9\nhidden = [8, 4]\nseed = 7\nuse = ["id"]\nshares = [0.8, 0.1, 0.1]\n'),
    )
    wanted = Plan(
        target="y", drop=("a", "b"), use=("id",), seed=7, shares=(0.8, 0.1, 0.1), model={"members": 3, "hidden": (8, 4)}
    )
    assert found == wanted
    assert plan_from(found.as_dict()) == Plan(**{**wanted.__dict__, "model": {"members": 3, "hidden": (8, 4)}})


def test_a_plan_makes_the_regressor():
    model = Plan(target="y", seed=5, model={"members": 3}).regressor(verbose=True)
    assert (model.members, model.random_state, model.verbose) == (3, 5, True)


def test_every_argument_of_the_regressor_is_a_key_but_those_that_the_fit_decides():
    assert {"likelihood", "beta", "epochs", "weight_decay", "numeric", "device", "fractional", "split_column"} <= set(
        keys()
    )
    assert not {"checkpoint", "random_state", "validation", "verbose", "model"} & set(keys())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "member = 3",
            r"keys in .*settings\.toml must be among target, exposure, .*members.*, got 'member'\. Did you mean",
        ),
        ("checkpoint = 'x'", r"got 'checkpoint'"),
        ("target = 3", r"target must be the name of a column, got 3\. Put it in quotes\."),
        ("drop = [1]", r'drop must list names of columns, got \[1\]\. Write \["one", "two"\]\.'),
        ("seed = -1", r"seed must be a whole number from 0 to 2\^32 - 1, got -1"),
        ("seed = true", r"seed must be a whole number"),
        ("shares = [0.5, 0.5]", r"shares must be those of .*, got \[0\.5, 0\.5\]\. Use"),
        ("shares = [0.9, 0.1, 0.0]", r"shares must be"),
        ("time = 'a'\nsplit_column = 'b'", r"split_column and time must not both be given"),
        ("weight = 'y'", r"a column must have one role, got 'y' with several"),
        ("drop = ['y']", r"drop and use must leave columns with a role alone, got 'y'"),
        ("not toml", r"settings\.toml must be TOML, got: "),
    ],
)
def test_what_makes_no_sense_is_told(file, text, sentence):
    given = {} if text.startswith("target") else {"target": "y"}
    with pytest.raises(ConfigError, match=sentence):
        plan_of(given, file(text))


def test_a_target_is_needed():
    with pytest.raises(ConfigError, match=r"target must be given, got none. Name the column of counts with --target."):
        plan_of({"target": None})


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"config must be a file, got .*none.toml, which is not there"):
        plan_of({"target": "y"}, tmp_path / "none.toml")
    with pytest.raises(InputError, match="config must be a text file"):
        plan_of({"target": "y"}, tmp_path)

"""What is needed to get the numbers again."""

import platform
from importlib.metadata import version

import pytest

from ddpn.report.reproduction import reproduction, training_words, versions, words_of
from ddpn.training import History


def test_everything_of_the_task_is_shown_and_none_is_needed(fitted, evidence):
    facts = dict(reproduction(fitted, evidence, {}))
    assert "members=2" in facts["Model"]
    assert "likelihood" not in facts["Model"], "defaults go without saying"
    assert "random_state=0" in facts["Seeds"]
    assert facts["Data fingerprint"] == f"sha256 {evidence.fingerprint}"
    assert "Command" not in facts
    task = {"target": "y", "command": "ddpn fit", "row_counts": {"train": 9}, "split": None, "seed": 3}
    facts = dict(reproduction(fitted, evidence, task))
    assert (facts["Command"], facts["Row counts"], facts["Seed"]) == ("ddpn fit", "train: 9", "3")
    assert not {"Target", "Split"} & set(facts)


def test_versions_are_those_installed():
    found = versions()
    assert (found["Python"], found["torch"]) == (platform.python_version(), version("torch"))


@pytest.mark.parametrize(
    ("value", "words"),
    [(3, "3"), (0.123456, "0.123"), (None, "None"), ([1, "a"], "1, a"), ({"a": {"b": 1}}, "a: (b: 1)")],
)
def test_any_value_becomes_a_line(value, words):
    assert words_of(value) == words


def test_a_training_is_told_with_what_went_wrong(fitted):
    words = training_words(fitted, fitted.history_)
    assert f"Trained on {fitted.n_rows_} rows for 20 epochs in " in words
    hard = History(fitted.history_.epochs, rollbacks=["member 0 at epoch 3"], stopped="patience")
    assert training_words(fitted, hard).endswith(
        " Stopped: patience. 1 time a member had to go back: member 0 at epoch 3."
    )

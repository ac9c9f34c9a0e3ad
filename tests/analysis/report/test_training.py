"""How the model was trained, and what is needed to reproduce the numbers."""

import platform
import re
from importlib.metadata import version
from types import SimpleNamespace

import pytest

from ddpn.analysis.report.training import (
    likelihood_text,
    members_text,
    reproduction,
    training_figures,
    training_sentences,
)
from ddpn.networks.training import History


def test_everything_of_the_task_is_shown_and_none_is_required(fitted, evidence):
    facts = dict(reproduction(fitted, evidence, {}))
    assert facts["Model"] == "2 networks"
    assert facts["Likelihood"] == fitted.likelihood
    assert facts["Training rows"] == "225 rows, 25 validation rows"
    assert "members = 2" in facts["Settings"]
    assert not re.search("validation|random_state|mix_with", facts["Settings"]), "shown elsewhere, or a default"
    assert facts["Seeds"].startswith("model 0;")
    assert facts["Data fingerprint"] == f"sha256 {evidence.fingerprint}"
    assert f"Python {platform.python_version()}" in facts["Versions of this report"]
    assert f"torch {version('torch')}" in facts["Versions of this report"]
    assert "Command" not in facts
    task = {"target": "y", "command": "ddpn fit", "row_counts": {"train": 9}, "split": None, "seed": 3}
    facts = dict(reproduction(fitted, evidence, task))
    assert (facts["Command"], facts["Row counts"], facts["Seed"]) == ("ddpn fit", '{"train": 9}', "3")
    assert not {"Target", "Split"} & set(facts)


def test_members_are_listed_with_their_weights():
    networks = SimpleNamespace(label="networks", model=SimpleNamespace(members=5))
    members = {"networks": networks, "glm": SimpleNamespace(label="GLM")}
    predictor = SimpleNamespace(mixed=members, weights={"networks": 0.75, "glm": 0.25})
    model = SimpleNamespace(predictor_=predictor, likelihood=("poisson", "negative_binomial"))
    assert members_text(model) == "5 networks (75%) + GLM (25%)"
    assert likelihood_text(model) == "poisson, negative_binomial"


@pytest.mark.parametrize(
    ("value", "words"),
    [("a", "a"), (0.5, "0.5"), ([1, "ä"], '[1, "ä"]'), ({"a": {"b": 1}}, '{"a": {"b": 1}}'), (1j, '"1j"')],
)
def test_any_value_becomes_one_line(fitted, evidence, value, words):
    assert dict(reproduction(fitted, evidence, {"known": value}))["Known"] == words


def test_a_training_is_described_with_what_went_wrong(fitted):
    words = training_sentences(fitted, fitted.history_)
    assert "Trained on 225 rows, 25 validation rows, for 5 epochs in " in words
    hard = History(fitted.history_.epochs, rollbacks=["member 0 at epoch 3"], stopped="patience")
    words = training_sentences(fitted, hard)
    assert words.endswith(" Stopped: patience. Rolled back 1 time, last: member 0 at epoch 3.")


def test_loss_and_score_are_drawn_with_the_epochs_kept(fitted):
    loss, score = training_figures(fitted.history_, "crps")
    assert (loss.name, score.name) == ("training-loss", "training-score")
    assert loss.svg.count('class="line thin"') == score.svg.count('class="line thin"') == 2
    assert re.search(r'<path d="([^"]*)" class="dot big"', score.svg).group(1).count("M") == 2
    assert "validation CRPS" in score.svg


def test_without_validation_rows_there_is_only_a_loss():
    history = History([{"loss": [1.0, None], "seconds": 1.0}, {"loss": [0.5, 0.7], "seconds": 1.0}], [2, 2])
    (loss,) = training_figures(history, "crps")
    assert loss.words == "The mean over members went from 1 to 0.600."
    assert training_figures(History(), "crps") == []


def test_epochs_without_a_score_are_left_out():
    epochs = [{"loss": [2.0], "score": None}, {"loss": [1.0], "score": [3.0]}, {"loss": [1.0], "score": [4.0]}]
    _, score = training_figures(History(epochs, [2]), "crps")
    assert re.search(r'<path d="([^"]*)" class="dot big"', score.svg).group(1).count("M") == 1
    assert "nan" not in score.svg


def test_a_single_epoch_can_be_drawn():
    (loss,) = training_figures(History([{"loss": [2.0], "seconds": 0.1}], [1]), "nll")
    assert "nan" not in loss.svg

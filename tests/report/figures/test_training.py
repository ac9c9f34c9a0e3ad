"""Training curves, whole or with gaps."""

import re

from ddpn.report.figures.training import training_figures
from ddpn.training import History


def test_loss_and_score_are_drawn_with_the_epochs_kept(fitted):
    loss, score = training_figures(fitted.history_, "crps")
    assert (loss.name, score.name) == ("training-loss", "training-score")
    assert loss.svg.count('class="line thin"') == score.svg.count('class="line thin"') == 2
    assert re.search(r'<path d="([^"]*)" class="dot big"', score.svg).group(1).count("M") == 2
    assert "validation CRPS" in score.svg


def test_without_validation_rows_there_is_only_a_loss():
    history = History([{"loss": [1.0, None], "seconds": 1.0}, {"loss": [0.5, 0.7], "seconds": 1.0}], [2, 2])
    (loss,) = training_figures(history, "crps")
    assert loss.words == "From 1 to 0.600, the mean over members."
    assert training_figures(History(), "crps") == []


def test_a_single_epoch_can_be_drawn():
    (loss,) = training_figures(History([{"loss": [2.0], "seconds": 0.1}], [1]), "nll")
    assert "nan" not in loss.svg

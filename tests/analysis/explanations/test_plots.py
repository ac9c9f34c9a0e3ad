"""Figures can be drawn for every kind of column."""

import numpy as np
import pytest

from ddpn import explain
from ddpn.analysis.explanations import Inputs, contributions


def test_every_kind_of_figure_is_drawn(formula, frame, tmp_path):
    model = formula(lambda c: c["x"] * np.where(c["ward"] == "b", 1.0, 0.1) + np.where(np.isnan(c["age"]), 1, 0))
    found = explain(model, frame[:120], np.ones(120))
    figure = found.effects.plot(most=7)
    assert len(figure.axes) == 14
    said = {words for ax in figure.axes for words in (ax.get_xlabel(), ax.get_ylabel())}
    assert {"predicted mean", "predicted variance / mean"} <= said
    labels = [text.get_text() for ax in found.effects.plot(["ward", "flag"]).axes for text in ax.get_yticklabels()]
    assert {"a", "b", "c", "missing", "no", "yes"} <= set(labels)
    assert len(found.importance.plot(most=3).axes) == 3
    assert len(found.importance.plot(most=3).axes[0].get_yticklabels()) == 3
    rows = contributions(Inputs(model, frame[:3]), Inputs(model, frame))
    drawn = rows.plot(row=1, most=2).axes[0]
    assert [text.get_text() for text in drawn.get_yticklabels()][-1] == "5 others"
    ends = [bar.get_x() + bar.get_width() for bar in drawn.patches]
    assert ends[-1] == pytest.approx(rows.prediction[1])
    found.effects.plot(["x"]).savefig(tmp_path / "effects.png")
    assert set(found.to_dict()) == {"rows", "effects", "importance"}

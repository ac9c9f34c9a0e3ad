"""The baselines' intervals: calibrated by the same rows as the model's, and kept."""

import numpy as np
import pytest
import torch
from ddpn.workflow.intervals import LAW_ROWS, levels_of, load_levels, save_levels

from ddpn.errors import InputError
from ddpn.workflow.model_folder import load, save
from ddpn.workflow.prediction import evaluate


def test_every_baseline_holds_what_is_asked_of_the_validation_rows(fitted, prepared):
    rows = prepared.validation
    assert set(fitted.folder.levels) == set(fitted.folder.baselines)
    for name, baseline in fitted.folder.baselines.items():
        law = baseline.law(rows.X, rows.exposure)
        share, level = rows.weight / rows.weight.mean(), fitted.folder.levels[name].at(0.9)

        def held(at, law=law, share=share):
            """Rows inside, and of the laws' own counts so many as 100 rows of them would be."""
            low, high = law.interval(at)
            y = torch.from_numpy(rows.y)
            inside = ((low <= y) & (y <= high)).double().numpy()
            mass = (law.cdf(high) - law.cdf(low) + law.log_prob(low).exp()).numpy()
            return inside @ share + LAW_ROWS * (mass @ share) / len(rows)

        wanted = 0.9 * (len(rows) + LAW_ROWS + 1)
        # Their mass is the mean over all counts, their word that of a hundred quantiles or so a row.
        assert held(level) >= wanted - 2.0, name
        assert held(level - 0.03) <= wanted + 2.0, name
        assert fitted.folder.levels[name].rows.tolist() == [len(rows)]


def test_blocks_change_nothing(fitted, prepared, monkeypatch):
    whole = levels_of(fitted.folder.baselines, prepared.validation)
    monkeypatch.setattr("ddpn.workflow.sample.BLOCK", 7)
    parts = levels_of(fitted.folder.baselines, prepared.validation)
    for name, each in whole.items():
        assert parts[name].needed == pytest.approx(each.needed, rel=1e-9)


def test_without_validation_rows_there_are_no_levels(fitted, prepared):
    assert levels_of(fitted.folder.baselines, prepared.sample.rows(np.arange(0))) == {}


def test_a_folder_keeps_them(fitted, table, tmp_path):
    save(fitted.folder, tmp_path / "model")
    again = load(tmp_path / "model")
    for name, each in fitted.folder.levels.items():
        assert (again.levels[name].needed == each.needed).all()
    assert evaluate(again, table) == evaluate(fitted.folder, table)


def test_a_folder_of_an_earlier_version_has_none_and_a_damaged_one_is_told(fitted, tmp_path):
    save_levels({}, tmp_path)
    assert load_levels(tmp_path) == {}
    save_levels(fitted.folder.levels, tmp_path)
    file = tmp_path / "intervals.safetensors"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(InputError, match=r"intervals\.safetensors must be as it was saved, got .* Fit the model again"):
        load_levels(tmp_path)

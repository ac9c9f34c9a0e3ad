"""Test `ddpn fit --stream`: every row is checked, and the model is as good as that of a fit in memory."""

import numpy as np
import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

from ddpn.cli import app
from ddpn.metrics import crps
from ddpn.runtime.errors import InputError
from ddpn.tables.table import Table
from ddpn.workflow.config import FitConfig
from ddpn.workflow.large_tables import check_and_read_rows, open_table
from ddpn.workflow.model_folder import SavedModel, load
from ddpn.workflow.preparing import prepare

QUICK = """
n_networks = 1
epochs = 6
hidden = [32]
likelihood = "negative_binomial"
mix_with = []
compare_with = ["constant"]
drop = ["row"]
device = "cpu"
[training_options]
batch_size = 256
lr = 0.01
"""
MODEL = {"n_networks": 2, "epochs": 4, "hidden": [32], "likelihood": "negative_binomial"}


def run_command(*arguments):
    return CliRunner().invoke(app, [str(word) for word in arguments])


@pytest.fixture(scope="module")
def fits(folder, tmp_path_factory):
    """The same fit in memory, and as a stream with 6,000 sampled rows."""
    out = tmp_path_factory.mktemp("models")
    (out / "quick.toml").write_text(QUICK)
    quick = ["--target", "y", "--config", out / "quick.toml"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ddpn.tables.shuffling.SAMPLE_ROWS", 6000)
        streamed = run_command("fit", folder / "*.parquet", *quick, "--stream", "-o", out / "stream")
    assert streamed.exit_code == 0, streamed.output
    memory = run_command("fit", *sorted(folder.iterdir()), *quick, "-o", out / "memory")
    assert memory.exit_code == 0, memory.output
    return out, streamed


def test_the_folder_is_an_ordinary_model(fits, folder):
    out, printed = fits
    assert "9,000 rows in 3 files" in printed.output
    task = SavedModel(out / "stream").task
    assert task["stream"] == {"files": 3, "rows": 9000, "streamed": 9000 - 600 - 1200, "sampled": 6000}
    assert task["split"]["rows"] == {"train": 4200, "validation": 600, "test": 1200}
    shown = run_command("show", out / "stream")
    assert "Streamed" in shown.output
    result = run_command("predict", out / "stream", folder / "part-1.parquet", "-o", out / "predictions.csv")
    assert result.exit_code == 0, result.output
    assert pl.read_csv(out / "predictions.csv").height == 3000


def test_scores_equal_those_in_memory_within_noise(fits):
    out, _ = fits
    rng = np.random.default_rng(9)
    x, z, kind = rng.normal(size=4000), rng.uniform(size=4000), rng.choice(["a", "b", "c"], 4000)
    y = torch.from_numpy(rng.poisson(np.exp(0.5 + 0.6 * x + (kind == "a") * (z > 0.5))).astype(float))
    new = pl.DataFrame({"x": x, "z": z, "kind": kind})
    models = {name: load(out / name).model for name in ("stream", "memory")}
    scores = {name: crps(model.predict_distribution(new), y).numpy() for name, model in models.items()}
    constant = models["memory"].predictor_.members["constant"].distribution(new)
    assert scores["stream"].mean() < 0.8 * float(crps(constant, y[:, None]).mean())
    gain = scores["memory"] - scores["stream"]
    # The seed of the networks is part of the noise: 0.5% of the CRPS.
    assert abs(gain.mean()) < 3 * gain.std() / np.sqrt(len(y)) + 0.005 * scores["memory"].mean()


def test_held_out_rows_are_never_streamed(folder):
    plan = FitConfig(target="y", drop=("row",), **MODEL)
    prepared = prepare(open_table([str(folder)], plan, stream=True)[0], plan)
    chunk = next(prepared.stream.chunks(len(prepared.stream), seed=0))
    streamed, held_out = prepared.stream.sample(chunk), prepared.stream.held_out
    held_out_x = np.concatenate([prepared.validation.X.column("x").values, prepared.test.X.column("x").values])
    assert len(held_out) == len(held_out_x)
    assert not np.isin(streamed.X.column("x").values, held_out_x).any()
    assert len(np.unique(streamed.X.column("x").values)) == 9000 - len(held_out_x)


@pytest.mark.parametrize("how", ["time", "split_column"])
def test_only_training_rows_of_the_split_are_streamed(table, tmp_path, write_parts, how):
    words = np.where(np.arange(9000) % 5 == 0, "test", "train")
    write_parts(table.with_columns(part=pl.Series(words)), tmp_path)
    plan = FitConfig(target="y", **MODEL, **({"time": "row"} if how == "time" else {"split_column": "part"}))
    prepared = prepare(open_table([str(tmp_path)], plan, stream=True)[0], plan)
    chunk = next(prepared.stream.chunks(len(prepared.stream), seed=0))
    if how == "time":
        assert chunk["row"].max() < 6300
        assert len(prepared.stream) == 6300
    else:
        assert set(chunk["part"]) == {"train"}


def test_a_bad_row_leaves_nothing_behind(table, tmp_path, write_parts):
    frame = table.with_columns(y=pl.when(pl.col("row") == 8000).then(-1).otherwise(pl.col("y")))
    write_parts(frame, tmp_path / "data")
    result = run_command("fit", tmp_path / "data", "--target", "y", "--stream", "-o", tmp_path / "model")
    assert result.exit_code == 1, result.output
    words = " ".join(result.output.split())
    assert "part-2.parquet: target 'y' must hold non-negative integers, got -1 at row 2001." in words
    assert "The file begins with row 6,001 of the table." in words
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_stream_on_a_cluster_is_refused(folder, tmp_path):
    result = run_command("fit", folder, "--target", "y", "--stream", "--cluster", "auto", "-o", tmp_path / "model")
    assert result.exit_code != 0
    assert "--cluster cannot be combined with a streamed table" in result.output


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "folder"])
def test_a_table_that_does_not_fit_is_streamed_by_itself(table, folder, tmp_path, monkeypatch, name):
    table.write_csv(tmp_path / "a.csv")
    table.write_parquet(tmp_path / "a.parquet")
    source, plan = str(folder if name == "folder" else tmp_path / name), FitConfig(target="y")
    assert open_table([source], plan)[0].height == 9000
    for module in ("ddpn.tables.shuffling", "ddpn.workflow.large_tables"):
        monkeypatch.setattr(f"{module}.measure_free_memory", lambda: 1000)
    result, note = open_table([source], plan)
    assert isinstance(result, Table)
    assert "more than half of the free memory" in note
    assert open_table([source], plan, stream=False)[0].height == 9000


def test_few_rows_are_fitted_in_memory(table, tmp_path, write_parts):
    write_parts(table[:2000], tmp_path)
    result, note = open_table([str(tmp_path)], FitConfig(target="y"), stream=True)
    assert result.height == 2000
    assert "because they are few" in note


def test_text_is_streamed_as_parquet_is(folder, table, tmp_path, monkeypatch):
    monkeypatch.setattr("ddpn.tables.blocks.MAX_WHOLE_FILE_BYTES", 0)
    monkeypatch.setattr("ddpn.tables.blocks.BLOCK_ROWS", 1000)
    table.write_csv(tmp_path / "a.csv")
    plan = FitConfig(target="y", **MODEL)
    actual, expected = (
        prepare(open_table([str(source)], plan, stream=True)[0], plan) for source in (tmp_path / "a.csv", folder)
    )
    assert_frame_equal(actual.sample.X.to_polars(), expected.sample.X.to_polars())
    assert len(actual.stream) == len(expected.stream)
    chunks = [next(prepared.stream.chunks(len(prepared.stream), seed=0)).sort("x") for prepared in (actual, expected)]
    assert_frame_equal(*chunks)


@pytest.mark.parametrize("group", ["person", "equal-inputs"])
def test_rows_of_held_out_groups_are_never_streamed(table, tmp_path, write_parts, group, monkeypatch):
    person = np.random.default_rng(0).permutation(9000) % 1500
    inputs = table[person.tolist()].select("x", "z")
    frame = inputs.with_columns(person=pl.Series(person), y=table["y"])
    write_parts(frame, tmp_path)
    monkeypatch.setattr("ddpn.tables.shuffling.SAMPLE_ROWS", 6000)
    plan = FitConfig(target="y", group=(group,), drop=("person",), **MODEL)
    prepared = prepare(open_table([str(tmp_path)], plan, stream=True)[0], plan)
    held_out = {*prepared.validation.X.column("x").values, *prepared.test.X.column("x").values}
    chunk = next(prepared.stream.chunks(len(prepared.stream), seed=0))
    assert not held_out & set(chunk["x"])
    assert len(held_out) + len(set(chunk["x"])) == 1500
    assert len(prepared.stream) == pytest.approx(6 * (1500 - len(held_out)), rel=0.05)


# The pass that checks every row ---------------------------------------------------------------------------------------


def draw_checked_rows(folder, **plan):
    table = Table([str(folder)])
    return check_and_read_rows(table, FitConfig(**{"target": "y"} | plan), np.arange(0, table.rows, 3))


def test_rows_are_counted_and_those_that_are_asked_for_returned(folder, table):
    frame, used = draw_checked_rows(folder)
    assert used == 9000
    assert frame.equals(table[::3])


def test_rows_without_a_target_do_not_count(table, tmp_path, write_parts):
    has_target = (pl.col("row") % 10 != 3) & (pl.col("row") < 6000)
    write_parts(table.with_columns(pl.when(has_target).then(pl.col("y")).alias("y")), tmp_path)
    assert draw_checked_rows(tmp_path)[1] == 5400


#: Row 7,000 of the table is row 1,001 of the third file.
BAD = {
    "negative": ({"y": -3}, {}, "target 'y' must hold non-negative integers, got -3 at row 1001"),
    "exposure": ({"z": -1.0}, {"exposure": "z"}, "exposure 'z' must be finite and positive, got -1 at row 1001"),
    "split": ({"part": "x"}, {"split_column": "part"}, "split_column 'part' .*'x' at row 10"),
    "time": ({"z": None}, {"time": "z"}, "time 'z' is missing at row 1001"),
}  # fmt: skip


@pytest.mark.parametrize(("values", "roles", "words"), BAD.values(), ids=BAD.keys())
def test_a_bad_value_is_named_by_file_and_row(table, tmp_path, write_parts, values, roles, words):
    frame = table.with_columns(pl.col("y").cast(pl.Float64), part=pl.lit("train"))
    for name, value in values.items():
        bad = pl.lit(value, dtype=frame.schema[name])
        frame = frame.with_columns(pl.when(pl.col("row") == 7000).then(bad).otherwise(pl.col(name)).alias(name))
    write_parts(frame, tmp_path)
    with pytest.raises(InputError, match=rf"part-2\.parquet: {words}"):
        draw_checked_rows(tmp_path, **roles)


def test_a_target_of_text_and_an_unknown_column_are_refused(folder):
    with pytest.raises(InputError, match=r"part-0\.parquet: target 'kind' must hold numbers, got '[abc]' at rows 1, 2"):
        draw_checked_rows(folder, target="kind")
    with pytest.raises(InputError, match="'yy'"):
        draw_checked_rows(folder, target="yy")


def test_weights_of_zero_alone_are_refused(table, tmp_path, write_parts):
    write_parts(table.with_columns(w=pl.lit(0.0)), tmp_path)
    with pytest.raises(InputError, match="weight 'w' must be positive in some row"):
        draw_checked_rows(tmp_path, weight="w")


def test_weights_that_are_text_choose_the_training_rows(table, tmp_path, write_parts):
    """A decimal comma makes a column of text; rows of weight 0,0 are not streamed."""
    weights = pl.when(pl.col("row") % 3 == 0).then(pl.lit("0,0")).otherwise(pl.lit("1,5"))
    write_parts(table.with_columns(w=weights), tmp_path)
    plan = FitConfig(target="y", weight="w", drop=("row",))
    prepared = prepare(open_table([str(tmp_path)], plan, stream=True)[0], plan)
    sample = prepared.stream.sample(next(prepared.stream.chunks(2000, seed=0)))
    assert set(sample.weight.tolist()) == {1.5}

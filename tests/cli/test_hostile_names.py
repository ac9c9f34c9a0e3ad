"""Test that all commands print names and values that look like markup, options or formats as they are."""

import numpy as np
import polars as pl
import pytest

from ddpn.tables.files import read_file

#: Tags of rich that would be an error, a style and an emoji; braces, percent signs, quotes, HTML.
NAMES = ("[/red]x1", "[bold]x2", ":smile:", "{x4}", "%s 5", "x'6\"", "<b>x7</b>", "--drop")
TARGET = "[/]visits[red]"
QUICK = 'n_networks = 2\nhidden = [8]\nnumeric = "standard"\nepochs = 3\ndevice = "cpu"\n'
ROWS = 260


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    """Numbers, words and gaps under hostile names; the first columns move the counts."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, len(NAMES)))
    columns = {name: x[:, j] for j, name in enumerate(NAMES)}
    levels = rng.choice(["[/green]a", "[link=x]b", ":+1:"], ROWS)
    columns |= {"[/blue]level": levels, TARGET: rng.poisson(np.exp(0.8 + 0.7 * x[:, 0] + (levels == ":+1:")))}
    # Read as numbers, with notes on what was read.
    return pl.DataFrame(columns).with_columns(pl.Series("[/i]gaps", rng.choice(["1", "2", "n/a", "missing"], ROWS)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, table):
    folder_path = tmp_path_factory.mktemp("hostile")
    (folder_path / "[").mkdir()  # in which the file red]t.csv is [/red]t.csv
    table.write_csv(folder_path / "[/red]t.csv")
    (folder_path / "quick.toml").write_text(QUICK)
    return folder_path


@pytest.fixture
def run_in_folder(run_ddpn, folder, monkeypatch):
    """Run a command in the folder of the table; it must succeed."""
    monkeypatch.chdir(folder)

    def command(*words: str, codes=(0,)):
        result = run_ddpn(*words)
        assert result.exit_code in codes, result.output
        assert "Traceback" not in result.output
        return result

    return command


def test_all_commands_print_hostile_names_as_they_are(run_in_folder, table, folder):
    model = "[/red]m"
    result = run_in_folder("fit", "[/red]t.csv", "--target", TARGET, "--config", "quick.toml", "-o", model)
    assert all(name in result.stdout for name in (*NAMES, TARGET, "[/blue]level"))
    assert "Saved in [/red]m." in result.stdout
    shown = run_in_folder("show", model).stdout.replace("\n", "")
    assert "[/red]x1, [bold]x2, :smile:, {x4}, %s 5" in " ".join(shown.split())
    assert TARGET in shown
    run_in_folder("evaluate", model, "[/red]t.csv")
    table.with_columns(pl.lit("[/red]new").alias("[/blue]level")).write_csv(folder / "new.csv")
    result = run_in_folder("predict", model, "new.csv", "-o", "[/red]p.csv", "--keep", "--overwrite")
    assert "[/blue]level" in result.stderr
    assert "predictions written to [/red]p.csv" in result.stderr
    assert set(NAMES) < set(read_file("[/red]p.csv").columns)
    for words in ([], ["--rows", "1"]):
        explained = run_in_folder("explain", model, "[/red]t.csv", *words).stdout
        assert all(name in explained for name in NAMES)
    run_in_folder("report", model, "[/red]t.csv", "-o", "[/red]r.html", "--overwrite")
    text = (folder / "[/red]r.html").read_text()
    assert "[/red]x1" in text
    assert "<b>x7</b>" not in text
    assert TARGET in run_in_folder("diagnose", "[/red]t.csv", "--target", TARGET, "--mean-model", "glm").stdout
    assert "[/red]x1" in run_in_folder("monitor", model, "[/red]t.csv", codes=(0, 3)).output


@pytest.mark.parametrize(
    "words",
    [
        ("fit", "[/red]none.csv", "--target", "y", "-o", "new"),
        ("fit", "[/red]t.csv", "--target", "[/red]y", "-o", "new"),
        ("fit", "[/red]t.csv", "--target", TARGET, "--drop", "[/red]z", "-o", "new"),
        ("fit", "[/red]t.csv", "--target", TARGET, "--[/red]", "-o", "new"),
        ("show", "[/red]none"),
    ],
)
def test_errors_print_hostile_names_as_they_are(run_in_folder, words):
    assert "[/red]" in run_in_folder(*words, codes=(1, 2)).stderr

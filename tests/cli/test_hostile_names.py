"""Names and values that look like markup, options or formats are printed as they are, by every command."""

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
    place = tmp_path_factory.mktemp("hostile")
    (place / "[").mkdir()  # in which the file red]t.csv is [/red]t.csv
    table.write_csv(place / "[/red]t.csv")
    (place / "quick.toml").write_text(QUICK)
    return place


@pytest.fixture
def run(ddpn, folder, monkeypatch):
    """Runs a command in the folder of the table; it must succeed."""
    monkeypatch.chdir(folder)

    def command(*words: str, codes=(0,)):
        found = ddpn(*words)
        assert found.exit_code in codes, found.output
        assert "Traceback" not in found.output
        return found

    return command


def test_what_commands_print_and_write(run, table, folder):
    model = "[/red]m"
    found = run("fit", "[/red]t.csv", "--target", TARGET, "--config", "quick.toml", "-o", model)
    assert all(name in found.stdout for name in (*NAMES, TARGET, "[/blue]level"))
    assert "Saved in [/red]m." in found.stdout
    shown = run("show", model).stdout.replace("\n", "")
    assert "[/red]x1, [bold]x2, :smile:, {x4}, %s 5" in " ".join(shown.split())
    assert TARGET in shown
    run("evaluate", model, "[/red]t.csv")
    table.with_columns(pl.lit("[/red]new").alias("[/blue]level")).write_csv(folder / "new.csv")
    found = run("predict", model, "new.csv", "-o", "[/red]p.csv", "--keep", "--overwrite")
    assert "[/blue]level" in found.stderr
    assert "predictions written to [/red]p.csv" in found.stderr
    assert set(NAMES) < set(read_file("[/red]p.csv").columns)
    for words in ([], ["--rows", "1"]):
        explained = run("explain", model, "[/red]t.csv", *words).stdout
        assert all(name in explained for name in NAMES)
    run("report", model, "[/red]t.csv", "-o", "[/red]r.html", "--overwrite")
    text = (folder / "[/red]r.html").read_text()
    assert "[/red]x1" in text
    assert "<b>x7</b>" not in text
    assert TARGET in run("diagnose", "[/red]t.csv", "--target", TARGET, "--mean-model", "glm").stdout
    assert "[/red]x1" in run("monitor", model, "[/red]t.csv", codes=(0, 3)).output


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
def test_errors(run, words):
    assert "[/red]" in run(*words, codes=(1, 2)).stderr

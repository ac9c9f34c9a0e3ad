"""Test every page of the documentation:

its code runs, in order and in an empty folder, and prints what the page shows.
"""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from ddpn.cli import app
from ddpn.members import MEMBERS
from ddpn.networks.heads import HEADS
from ddpn.paper.datasets import DATASETS
from ddpn.paper.experiments import catalogue

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted(DOCS.glob("*.md")),
    *sorted(DOCS.glob("tutorials/*.md")),
    *sorted(DOCS.glob("how-to/*.md")),
    *sorted(DOCS.glob("results/*.md")),
    *sorted(DOCS.glob("api/*.md")),
]
#: Records of experiments that chose defaults; their scripts are in the history of the repository.
NOTES = sorted((ROOT / "benchmarks" / "notes").glob("*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
#: Settings of a fit that a page shows with all defaults, and the rows of a table that commands are run on.
QUICK = 'n_networks = 1\nhidden = [8]\nnumeric = "standard"\nepochs = 1\nmix_with = []\ncompare_with = ["constant"]\n'
ROWS = 400
#: Commands that are run; of the others (`report` is run by tests/cli) the options are checked.
RUN = ("fit", "predict", "evaluate", "show")


def find_blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def find_command(words: list[str]):
    """Find the command that these words call, and the remaining words."""
    command, words = typer.main.get_command(app), list(words)
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        assert words[0] in command.commands, f"no command {words[0]}"
        command = command.commands[words.pop(0)]
    return command, words


def check_ddpn(words: list[str]) -> None:
    """Check that the command has these options and knows the names that it is given."""
    command, options = find_command(words)
    parsed = command.make_context(command.name or "ddpn", options).params
    if words[0] == "reproduce":
        assert set(parsed["names"] or []) <= {*catalogue.list_names(), "all"}
    if words[:2] == ["data", "get"]:
        assert parsed["name"] in DATASETS


def run_script(words: list[str], folder: Path) -> None:
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"python {' '.join(words)}: {done.stdout}{done.stderr}"


def run_tests(words: list[str], folder: Path) -> None:
    """Run tests of this repository with the modules in the folder, as if they were in the repository's root."""
    path = os.pathsep.join([str(folder), str(ROOT / "src")])
    options = ["-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *words, *options]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"pytest {' '.join(words)}: {done.stdout}{done.stderr}"


def shorten_fit(words: list[str], folder: Path) -> list[str]:
    """Shorten the tables in the folder, and return the words of a command with settings of a quick fit."""
    for table in folder.glob("*.csv"):
        lines = table.read_text().splitlines(keepends=True)
        table.write_text("".join(lines[: ROWS + 1]))
    if "fit" in words and "--config" not in words:
        (folder / "quick.toml").write_text(QUICK)
        return [*words, "--config", "quick.toml"]
    return words


def run_ddpn(words: list[str], folder: Path) -> None:
    words = shorten_fit(words, folder)
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, f"ddpn {' '.join(words)}: {done.output}"


def check_line(line: str, folder: Path) -> None:
    """Run a shell command if that is quick and harmless, else check what it names."""
    words = shlex.split(line, comments=True)
    if not words:
        return
    name, *arguments = words
    if Path(name).name == "ddpn":
        is_quick = arguments[0] in RUN or arguments in (["--help"], ["data", "list"], ["reproduce", "--list"])
        run_ddpn(arguments, folder) if is_quick else check_ddpn(arguments)
    elif name == "torchrun" and "-m" in arguments:
        assert arguments[arguments.index("-m") + 1] == "ddpn.cli"
        check_ddpn(arguments[arguments.index("-m") + 2 :])
    elif name == "make":
        assert re.search(rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    elif words[:2] == ["pip", "install"]:
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert set(re.findall(r"\w+", words[-1])) <= {"ddpn", *extras}
    elif name == "python" and arguments[:2] == ["-m", "pytest"]:
        run_tests(arguments[2:], folder)
    elif name == "python" and (folder / arguments[0]).is_file():
        run_script(shorten_fit(arguments, folder), folder)
    elif Path(name).name == "python":
        assert (ROOT / arguments[0]).is_file()
    else:
        assert (name, arguments) == ("torchrun", ["--nproc_per_node", "2", "train.py"]), f"not checked: {line}"


@pytest.fixture
def restore_registries():
    """Restore the registries after a page has added to them."""
    before = [(registry, dict(registry)) for registry in (HEADS, MEMBERS)]
    yield
    for registry, entries in before:
        registry.clear()
        registry.update(entries)


def parse_board(text: str) -> dict[str, list[str]]:
    """Parse a printed leaderboard: the cells of each model by its name, without the seconds of its fit."""
    header, *lines = text.splitlines()[text.startswith("Scores") :]
    columns = re.split(r"\s{2,}", header.strip())
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines if len(line) <= len(header) and line.strip()]
    return {name: cells[: len(cells) - ("fit, s" in columns)] for name, *cells in rows}


def check_board(shown: str, board: object) -> None:
    """Check a leaderboard on a page against the fit. Its last digits depend on the processor."""
    expected, actual = parse_board(shown), parse_board(str(board))
    assert list(expected) == list(actual)
    for name, cells in expected.items():
        for cell, other in zip(cells, actual[name], strict=True):
            if "-" in (cell, other):
                assert cell == other, name
            else:
                tolerance = 1.0 if cell.endswith("%") else 0.0
                assert float(cell.strip("%")) == pytest.approx(float(other.strip("%")), rel=0.01, abs=tolerance), name


def check_printed_board(shown: str, board: object) -> None:
    """Check what a page shows for `print(board)` or `print(board.verdict)`. It may break the lines of the verdict."""
    lines = shown.splitlines()
    if lines[0].startswith("Scores"):
        table, lines = lines[1 : len(board.entries) + 2], [lines[0], *lines[len(board.entries) + 2 :]]
        check_board("\n".join(table), board)
        assert lines.pop(0) == board.title
    assert " ".join(lines) == str(board.verdict)


def list_runnable_pages() -> list[Path]:
    return [page for page in PAGES if any(kind in ("python", "sh", "toml") for kind, _ in find_blocks(page))]


@pytest.mark.parametrize("page", list_runnable_pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_prints_what_it_shows(page, tmp_path, monkeypatch, capsys, restore_registries):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("DDPN_DATA", str(tmp_path / "data"))
    space: dict[str, object] = {"__name__": "page"}
    shown, before = [], ""
    for kind, text in find_blocks(page):
        last = before.splitlines()[-1] if before else ""
        if kind == "text" and (printed := re.fullmatch(r"print\((board|board\.verdict)\)", last)):
            check_printed_board(text, space["board"])
            shown += str(eval(printed[1], space)).splitlines()
        elif kind == "text" and re.fullmatch(r"print\(.*\)", last):
            shown += text.splitlines()
        if kind == "text" and text.split()[0] == "weight":
            check_board(text.split("\n\n")[0], space["board"])
        before = text
        if kind == "python":
            if script := re.match(r"# (\w+\.py)\n", text):
                (tmp_path / script[1]).write_text(text)
            shown += re.findall(r"^\s*print\(.*\)  # (.+)$", text, flags=re.MULTILINE)
            exec(compile(text, f"{page.name}", "exec"), space)
        elif kind == "toml":
            (tmp_path / text.splitlines()[0].removeprefix("# ")).write_text(text)
        elif kind == "sh":
            for line in text.splitlines():
                check_line(line, tmp_path)
    assert capsys.readouterr().out.splitlines() == shown


def test_blocks_are_of_kinds_that_are_run():
    """Code of any other kind would not be checked; text is output and mathematics."""
    kinds = {kind for page in PAGES for kind, _ in find_blocks(page)}
    assert kinds <= {"python", "sh", "toml", "text"}


def test_the_page_on_the_command_line_has_every_option():
    text = (DOCS / "command-line.md").read_text(encoding="utf-8")
    parts = dict(re.findall(r"^## (ddpn .*?)\n(.*?)(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL))
    program = typer.main.get_command(app)
    for name, command in program.commands.items():
        (part,) = (body for heading, body in parts.items() if re.search(rf"\b{name}\b", heading))
        for parameter in command.params:
            for option in (*parameter.opts, *parameter.secondary_opts):
                if option.startswith("-") and option not in ("--help", "--help-all"):
                    assert f"`{option}`" in part, f"{name} {option}"
    for name in program.commands["data"].commands:
        assert f"ddpn data {name}" in parts["ddpn data"]


@pytest.mark.parametrize("page", [*PAGES, *NOTES], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in link:
            assert (page.parent / link.partition("#")[0]).exists(), link


def test_every_page_is_in_the_contents():
    join_words = {DOCS / "index.md"}
    for page in PAGES[1:]:
        for contents in re.findall(
            r"^```{toctree}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        ):
            lines = [line for line in contents.splitlines() if line and not line.startswith(":")]
            join_words |= {(page.parent / f"{line}.md").resolve() for line in lines}
    assert join_words == set(PAGES[1:])


def test_the_page_of_the_paper_has_every_table_figure_and_experiment():
    text = (DOCS / "paper.md").read_text(encoding="utf-8")
    commands = [shlex.split(line) for line in re.findall(r"`ddpn (reproduce [^`]+|data list)`", text)]
    for words in commands:
        check_ddpn(words)
    named = {name for words in commands for name in words}
    experiments = {
        name for name in catalogue.list_names() if re.match("Table|Figure", catalogue.read_toml(name)["paper"])
    }
    assert {name for name in experiments if not name.startswith("paper-")} <= named
    rows = re.findall(r"^\| (Table|Figure)s? (\d+)(?: (?:to|and) (\d+))?", text, flags=re.MULTILINE)
    numbers_by_kind = {
        kind: {n for k, a, b in rows if k == kind for n in range(int(a), int(b or a) + 1)} for kind, *_ in rows
    }
    assert numbers_by_kind == {"Table": set(range(1, 6)), "Figure": set(range(1, 33))}

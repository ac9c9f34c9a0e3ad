"""Test what answers without torch. All commands run in one process, as a start takes seconds."""

import json
import os
import subprocess
import sys

import pytest

#: Runs every command of the first argument with the program, in one process, and prints what each gave as JSON.
SCRIPT = """
import json, sys

import typer.testing
from ddpn.cli import app

found = []
for arguments in json.loads(sys.argv[1]):
    done = typer.testing.CliRunner().invoke(app, arguments)
    heavy = [name for name in ("torch", "sklearn", "scipy", "lightgbm", "numba") if name in sys.modules]
    polars = "polars" in sys.modules
    found.append([done.exit_code, done.output, heavy, polars])

from ddpn.runtime.threads import limit_threads
limit_threads(1)
from ddpn import CountRegressor
import torch
print(json.dumps([found, "lightgbm" in sys.modules, torch.get_num_threads()]))
"""
#: All commands are imported by the first.
HELP = [(), ("fit",), ("data",)]
FIT = ["fit", "visits.csv", "-o", "new"]
#: Command, exit code, and words of its output.
CASES = [
    *(((*command, "--help"), 0, "Usage") for command in HELP),
    (("--version",), 0, "."),
    (("show", "MODEL"), 0, "Poisson GLM"),
    (("show", "MODEL", "--json"), 0, '"crps_gain"'),
    (("fit", "none.csv", "--target", "visits", "-o", "new"), 1, "File not found: none.csv"),
    ((*FIT, "--target", "vists"), 1, "Did you mean 'visits'?"),
    ((*FIT, "--target", "visits", "--likelihood", "poison"), 2, "Did you mean 'poisson'?"),
    ((*FIT, "--config", "bad.toml"), 2, "[training_options]"),
    ((*FIT, "--tarket", "visits"), 2, "No such option"),
    (FIT, 2, "target is missing"),
    (("fit", "visits.csv", "--target", "visits", "-o", "MODEL"), 1, "already exists"),
    (("tune", "visits.csv", "-o", "new", "--target", "visits", "--search", "lrr"), 2, "Did you mean 'lr'?"),
    (("show", "none"), 1, "Folder not found: none"),
    (("predict", "MODEL", "less.csv", "-o", "o.csv"), 1, "No column named 'ward'"),
    (("predict", "MODEL", "visits.csv", "-o", "visits.csv", "--overwrite"), 1, "is the table visits.csv itself"),
    (("evaluate", "MODEL", "less.csv"), 1, "No column named 'ward'"),
    (("report", "MODEL", "less.csv", "-o", "r.html"), 1, "No column named 'ward'"),
    (("report", "MODEL", "visits.csv", "-o", "visits.csv", "--overwrite"), 1, "is the table visits.csv itself"),
    (("reproduce", "--list"), 0, "length-of-stay"),
    (("reproduce", "wav"), 2, "Did you mean 'wave'?"),
]


@pytest.fixture(scope="module")
def answers(model_path, table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("startup")
    table.write_csv(folder / "visits.csv")
    table.drop("ward").write_csv(folder / "less.csv")
    (folder / "bad.toml").write_text('target = "visits"\nlr = 0.1\n')
    commands = [[str(model_path) if word == "MODEL" else word for word in arguments] for arguments, *_ in CASES]
    process = [sys.executable, "-c", SCRIPT, json.dumps(commands)]
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(process, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_help_show_and_usage_errors_need_no_torch(answers):
    outcomes, _, _ = answers
    for (arguments, code, words), (exit_code, output, heavy, _) in zip(CASES, outcomes, strict=True):
        assert (exit_code, heavy) == (code, []), (arguments, output)
        assert words in output, arguments


def test_help_needs_no_polars_either(answers):
    assert [polars for _, _, _, polars in answers[0][: len(HELP)]] == [False] * len(HELP)


def test_the_estimator_does_not_import_what_only_its_fit_needs(answers):
    _, lightgbm, _ = answers
    assert not lightgbm


def test_threads_are_limited_before_torch_is_imported(answers):
    _, _, threads = answers
    assert threads == 1

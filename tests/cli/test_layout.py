"""`--sheet` and `--skip-rows` belong to every command that reads a table, and errors name them."""

import pytest


@pytest.fixture
def workbook(tmp_path, table, write_workbook):
    """The table of the other tests below a title, in the second sheet."""
    rows = [["Visits of 2024"], [], table.columns, *table.rows()]
    write_workbook(tmp_path / "visits.xlsx", {"Notes": [["Late"], ["Early"]], "May": rows})
    return "visits.xlsx", "--sheet", "May", "--skip-rows", "2"


@pytest.mark.parametrize("command", ["predict", "evaluate", "report", "explain", "monitor"])
def test_commands_on_a_model_read_the_sheet(run_ddpn, files, model_path, workbook, command):
    out = {"predict": ["-o", "out.csv"], "report": ["-o", "out.html"]}.get(command, [])
    result = run_ddpn(command, str(model_path), *workbook, *out)
    assert result.exit_code == 0, result.output
    same = run_ddpn(command, str(model_path), "visits.csv", *(word.replace("out.", "same.") for word in out))
    assert same.stdout == result.stdout
    if command == "predict":
        assert (files / "out.csv").read_text() == (files / "same.csv").read_text()


def test_diagnose_reads_the_sheet_and_fit_names_the_options(run_ddpn, files, workbook):
    same = run_ddpn("diagnose", "visits.csv", "--target", "visits", "--mean-model", "glm")
    result = run_ddpn("diagnose", *workbook, "--target", "visits", "--mean-model", "glm")
    assert (result.exit_code, result.stdout) == (0, same.stdout)
    result = run_ddpn("fit", "visits.xlsx", "--target", "visits", "-o", "m")
    assert result.exit_code == 1
    assert "Warning: visits.xlsx has 2 sheets: Notes, May. The first is read; choose with --sheet May." in result.stderr
    result = run_ddpn("fit", *workbook[:3], "--target", "visits", "-o", "m")
    assert result.exit_code == 1
    assert "Read it with --skip-rows 2, or with --skip-rows 0 if the first row is the header." in result.stderr

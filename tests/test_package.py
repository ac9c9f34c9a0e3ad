"""What the package index shows: the README with links that work there, addresses, versions of Python."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="hatchling, which builds the package, is not installed")
ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LINK = re.compile(r"\]\(([^)\s]+)\)")
REPOSITORY = "https://github.com/owner/name"


@pytest.fixture(scope="module")
def hook():
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def update(hook):
    metadata = {"version": "1.2.3"}
    hook.ReadmeHook(str(ROOT), {}).update(metadata)
    return metadata


def test_links_of_the_readme_lead_to_files_of_the_release(hook, monkeypatch):
    monkeypatch.setenv("DDPN_REPOSITORY", f"{REPOSITORY}/")
    text = update(hook)["readme"]["text"]
    assert f"]({REPOSITORY}/raw/v1.2.3/docs/pictures/intervals.png)" in text
    for link in LINK.findall(text):
        assert link.startswith("https://")
        if link.startswith(REPOSITORY):
            path = re.sub(rf"{REPOSITORY}/(blob|raw)/v1\.2\.3/", "", link).partition("#")[0]
            assert (ROOT / path).is_file()
    assert len(LINK.findall(text)) == len(LINK.findall(README))


def test_without_a_repository_no_link_is_broken(hook, monkeypatch):
    monkeypatch.delenv("DDPN_REPOSITORY", raising=False)
    metadata = update(hook)
    assert all(link.startswith("https://") for link in LINK.findall(metadata["readme"]["text"]))
    assert "[" not in re.sub(r"```.*?```|`[^`]*`", "", metadata["readme"]["text"], flags=re.DOTALL)
    assert list(metadata["urls"]) == ["Paper"]


def test_addresses_follow_from_the_repository(hook):
    addresses = hook.list_addresses(REPOSITORY)
    assert addresses["Documentation"] == "https://owner.github.io/name/"
    assert addresses["Repository"] == REPOSITORY


def test_the_readme_states_the_versions_of_python_and_the_licence():
    versions = [word for word in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", word)]
    first, last = (version.rpartition(" ")[2] for version in (versions[0], versions[-1]))
    assert f"\nPython {first} to {last} · Linux · {PROJECT['license']}\n" in README
    assert PROJECT["requires-python"] == f">={first}"

"""The reference has every public name, and shows what exists."""

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

import ddpn

pytest.importorskip("sphinx", reason="sphinx, which builds the reference, is not installed")
DOCS = Path(__file__).resolve().parents[2] / "docs"
#: Packages whose names in `__all__` users need.
PUBLIC = [
    "ddpn",
    "ddpn.distributions",
    "ddpn.metrics",
    "ddpn.analysis.explanations",
    "ddpn.serving",
    "ddpn.export",
    "ddpn.networks.backbones",
]
#: Objects that are neither classes nor functions: the text of pages describes them.
OBJECTS = {"BACKBONES", "crps_scorer"}


def list_names(*pages):
    """The names in the tables of these pages."""
    return {
        f"ddpn.{name}"
        for page in pages
        for name in re.findall(r"^   ~([\w.]+)$", page.read_text("utf-8"), re.MULTILINE)
    }


def resolve(name):
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


def test_every_public_name_is_in_the_reference():
    names = list_names(*DOCS.glob("api/*.md"))
    described = {resolve(name) for name in names if not name.startswith("ddpn.forecasting.")}
    for package in PUBLIC:
        module = importlib.import_module(package)
        for name in set(module.__all__) - OBJECTS:
            assert getattr(module, name) in described, f"{package}.{name}"


def test_the_top_level_names_are_on_the_pages_for_users():
    public = {
        page.stem for page in DOCS.glob("api/*.md") if f"({page.name})" in (DOCS / "api/index.md").read_text("utf-8")
    }
    described = {resolve(name) for name in list_names(*(DOCS / f"api/{name}.md" for name in public - {"forecasting"}))}
    assert {getattr(ddpn, name) for name in ddpn.__all__} <= described


def test_pages_show_methods_that_exist_and_have_docstrings():
    spec = importlib.util.spec_from_file_location("cross_references", DOCS / "cross_references.py")
    references = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(references)
    names = sorted(name for name in list_names(*DOCS.glob("api/*.md")) if not name.startswith("ddpn.forecasting."))
    classes = {name: resolve(name) for name in names if isinstance(resolve(name), type)}
    shown = {cls.__name__ for cls in classes.values()} | {"DoublePoissonDistributionLoss", "DoublePoissonLikelihood"}
    assert set(references.MEMBERS["classes"]) <= shown | {"DoublePoissonOutput"}
    for name, cls in classes.items():
        for member in references.list_members(name):
            assert any(getattr(vars(base).get(member), "__doc__", None) for base in cls.__mro__), f"{name}.{member}"


@pytest.mark.parametrize("path", sorted(DOCS.glob("inventories/*.txt")), ids=lambda path: path.stem)
def test_names_of_other_packages_exist(path):
    for line in path.read_text("utf-8").splitlines()[3:]:
        assert resolve(line.split()[0])

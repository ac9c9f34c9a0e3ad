"""Terms of the glossary are the words of the documentation and of the code."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
#: What a term is called where its name is not written out.
WORDS = {
    "epistemic variance": "epistemic",
    "aleatoric variance": "aleatoric",
    "MP": "median precision",
    "Mondrian calibration": "Mondrian",
    "out-of-distribution (OOD) row": "out-of-distribution",
    "right-censored": "censored",
    "test, training, validation rows": "validation rows",
}


def read_terms():
    (body,) = re.findall(r"^```{glossary}\n(.*?)^```$", GLOSSARY.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^(?!:)(\S.*)$", body, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def texts():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "how-to").glob("*.md")]
    paths = [page for page in pages if page != GLOSSARY] + list((ROOT / "src").rglob("*.py"))
    return " ".join(re.sub(r"\s+", " ", path.read_text("utf-8")) for path in paths).lower()


def test_no_term_is_defined_twice():
    assert len(read_terms()) > 30
    assert len(read_terms()) == len({term.lower() for term in read_terms()})


@pytest.mark.parametrize("term", read_terms())
def test_a_term_is_used(term, texts):
    assert WORDS.get(term, term).lower() in texts

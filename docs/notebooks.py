"""Make notebooks of the quickstart and the tutorials, with their output: python docs/notebooks.py [NAME ...] runs them.

The pages are the source: their code becomes cells, their text becomes Markdown, and their pictures are attached.
"""

import base64
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
FOLDER = DOCS / "notebooks"
PAGES = [DOCS / "quickstart.md", *sorted(DOCS.glob("tutorials/*.md"))]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
_EXPECTED = re.compile(r"^(\s*print\(.*\))  # (.+)$", flags=re.MULTILINE)
_PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|attachment:)[^)\s]+\)")
#: The sentence of a page that links to its notebook.
_DOWNLOAD = re.compile(r"^\[[^\]]*\]\([^)]*\.ipynb\).*\n", flags=re.MULTILINE)


def read_blocks(page: Path) -> list[tuple[str, str]]:
    """Split a page into text ("markdown") and blocks of code, with the kinds that it gives them."""
    text = _DOWNLOAD.sub("", page.read_text(encoding="utf-8"))
    blocks, end = [], 0
    for match in _BLOCK.finditer(text):
        blocks += [("markdown", text[end : match.start()].strip()), (match[1], match[2])]
        end = match.end()
    return [block for block in [*blocks, ("markdown", text[end:].strip())] if block[1]]


def prints_last(code: str) -> bool:
    """Return True if a block of text after this code shows what its last line prints."""
    return re.search(r"^print\(.*\)\n\Z", code, flags=re.MULTILINE) is not None


def list_output(page: Path) -> list[str]:
    """List the lines that the page shows as printed."""
    lines, code = [], ""
    for kind, text in read_blocks(page):
        if kind == "text" and prints_last(code):
            lines += text.splitlines()
        if kind == "python":
            lines += [match[2] for match in _EXPECTED.finditer(text)]
        code = text if kind == "python" else ""
    return lines


def list_words(lines: list[str]) -> list[str]:
    """List the words of printed lines, without the last column of leaderboards: the seconds of a fit vary."""
    words, width = [], None
    for line in lines:
        if line.endswith("fit, s"):
            width = line.rindex("fit, s")
        elif "  " not in line.strip():
            width = None  # the lines of a table have several columns
        words += line[:width].split()
    return words


def make_notebook(page: Path) -> dict[str, Any]:
    """Make the notebook of a page, without output."""
    cells: list[dict[str, Any]] = []
    code = ""
    for kind, text in read_blocks(page):
        if kind == "python":
            source = _EXPECTED.sub(r"\1", text).rstrip("\n")
            cells.append({"cell_type": "code", "source": source, "outputs": [], "execution_count": None})
        elif kind == "markdown":
            cells.append(_make_text_cell(text, page.parent))
        elif kind != "text" or not prints_last(code):
            cells.append({"cell_type": "markdown", "source": f"```{kind}\n{text}```"})
        code = text if kind == "python" else ""
    for number, cell in enumerate(cells):
        cell |= {"id": f"cell-{number}", "metadata": {}}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _make_text_cell(text: str, folder: Path) -> dict[str, Any]:
    # A notebook is downloaded alone: pictures travel with it, and links to pages become words.
    pictures = {Path(path).name: (folder / path).read_bytes() for _, path in _PICTURE.findall(text)}
    text = _PICTURE.sub(lambda match: f"![{match[1]}](attachment:{Path(match[2]).name})", text)
    cell: dict[str, Any] = {"cell_type": "markdown", "source": _LINK.sub(r"\1", text)}
    if pictures:
        encoded = {name: {"image/png": base64.b64encode(data).decode()} for name, data in pictures.items()}
        cell["attachments"] = encoded
    return cell


def run_notebook(notebook: dict[str, Any]) -> dict[str, Any]:
    """Run a notebook in an empty folder and return it with its output."""
    import nbformat
    from nbclient import NotebookClient

    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        client = NotebookClient(nbformat.from_dict(notebook), resources=resources, record_timing=False, timeout=None)
        done = dict(client.execute())
    for cell in done["cells"]:
        if cell["cell_type"] == "code":
            # A page that warns fails its test, so the standard error only says that kernels were compiled.
            cell["outputs"] = [
                output for output in cell["outputs"] if output.get("name") != "stderr" and not is_progress(output)
            ]
    return done


def is_progress(output: dict[str, Any]) -> bool:
    """Return True for the progress of a fit: text that is displayed and ends in times, which vary from run to run."""
    return output["output_type"] == "display_data" and set(output["data"]) == {"text/plain"}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for page in PAGES:
        if page.stem in (sys.argv[1:] or [page.stem]):
            text = json.dumps(run_notebook(make_notebook(page)), indent=1, ensure_ascii=False, sort_keys=True)
            (FOLDER / f"{page.stem}.ipynb").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Write the page that shows every figure of the documentation, gallery.md: python docs/gallery.py."""

import re
from pathlib import Path

DOCS = Path(__file__).parent
PAGE = DOCS / "gallery.md"
#: The pages of each part, in the order of the gallery.
PARTS = {
    "Predictions and decisions": ["index.md", "quickstart.md", "tutorials/*.md", "how-to/*.md"],
    "Ideas": ["ideas.md", "architecture.md"],
    "Results and the paper's figures": ["results/tables.md", "results/*.md"],
}
_HEAD = """# Gallery

Every figure of this documentation, with a link to the page that explains it and shows how it was made. (`python
docs/gallery.py` writes this page.)
"""
_FIGURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")


def list_figures(page: Path) -> list[tuple[str, str]]:
    """List the description and the path, relative to this folder, of every figure of a page."""
    figures = _FIGURE.findall(page.read_text(encoding="utf-8"))
    return [(words, (page.parent / path).resolve().relative_to(DOCS).as_posix()) for words, path in figures]


def format_page() -> str:
    """Format the page."""
    text, shown = _HEAD, set()
    for part, patterns in PARTS.items():
        items = []
        for page in dict.fromkeys(path for pattern in patterns for path in sorted(DOCS.glob(pattern))):
            title = page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
            name = page.relative_to(DOCS).as_posix()
            for words, path in list_figures(page):
                if path not in shown:
                    shown.add(path)
                    items.append(f"- [![{words}]({path})]({name})\n\n  [{title}]({name})\n\n  {words}\n")
        text += f"\n## {part}\n\n:::{{container}} gallery\n" + "\n".join(items) + ":::\n"
    return text


if __name__ == "__main__":
    PAGE.write_text(format_page(), encoding="utf-8")

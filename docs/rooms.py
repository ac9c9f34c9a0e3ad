"""Draw the packages, what they import, and the path of a row through them: pictures/rooms.svg.

    python docs/rooms.py

The order of the packages is that of `[tool.importlinter]` in pyproject.toml. An arrow is an import that no longer way
through other packages implies.
"""

import tomllib
from html import escape
from itertools import pairwise
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "pictures" / "rooms.svg"
WIDTH, HEIGHT, GAP, LEFT, TOP = 130, 34, 28, 80, 56
FIT, PREDICT = "#1f5fa8", "#b4500f"
#: Where a row is on its way through a fit and through a prediction, in this order.
WAYS = {
    FIT: [
        ("cli", "ddpn fit"),
        ("workflow", "roles of columns, splits, leaks"),
        ("tables", "read the file"),
        ("members", "fit members, choose weights"),
        ("calibration", "calibrate on held-out rows"),
        ("analysis", "score the test rows, verdict"),
        ("storage", "save the model folder"),
    ],
    PREDICT: [
        ("serving", "ddpn serve, or ddpn predict"),
        ("predictor", "ask each member with a weight"),
        ("networks", "encoded row to distribution"),
        ("distributions", "mix; mean, quantiles, CRPS"),
        ("calibration", "level of the interval, OOD"),
    ],
}


def read_layers() -> list[list[str]]:
    """Read the packages from the top down; those in one list do not import each other."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = [[name.strip() for name in line.split("|")] for line in settings["contracts"][0]["layers"]]
    return [names for names in layers if names != ["__main__"]]


def find_arrows(order: list[list[str]]) -> list[tuple[str, str]]:
    """Return imports between packages, without those that a longer way through other packages implies."""
    graph, level = grimp.build_graph("ddpn"), {name: n for n, line in enumerate(order) for name in line}
    for name in level:
        graph.squash_module(f"ddpn.{name}")
    direct = {name: {imported for imported in level if _has_import(graph, level, name, imported)} for name in level}
    reached: dict[str, set[str]] = {}
    for name in reversed(level):
        reached[name] = direct[name].union(*(reached[imported] for imported in direct[name]))
    return [
        (name, imported)
        for name in level
        for imported in sorted(direct[name])
        if not any(imported in reached[other] for other in direct[name])
    ]


def _has_import(graph: grimp.ImportGraph, level: dict[str, int], upper: str, lower: str) -> bool:
    return level[upper] < level[lower] and graph.direct_import_exists(
        importer=f"ddpn.{upper}", imported=f"ddpn.{lower}"
    )


def place_boxes(order: list[list[str]]) -> dict[str, tuple[int, int]]:
    """Return the left upper corner of each box."""
    corners = {}
    for row, names in enumerate(order):
        for column, name in enumerate(names):
            shift = (2 * column + 2 - len(names)) * (WIDTH + GAP) // 2
            corners[name] = (LEFT + shift, TOP + row * (HEIGHT + GAP))
    return corners


def draw_arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    """Draw a line down to the next box; a longer one leaves and arrives at the side, around the boxes between."""
    (x, y), (u, v) = start, end
    if v - y <= HEIGHT + GAP:
        x, y, u, v = x + WIDTH // 2, y + HEIGHT, u + WIDTH // 2, v - 4
        return f'<path class="arrow" d="M{x},{y} C{x},{y + GAP} {u},{v - GAP} {u},{v}"/>'
    is_left = min(x, u) == LEFT
    edge, side = (0, -1) if is_left else (WIDTH, 1)
    x, y, u, v = x + edge, y + HEIGHT // 2, u + edge + 4 * side, v + HEIGHT // 2
    bend = (LEFT if is_left else LEFT + 2 * WIDTH + GAP) + side * (40 + (v - y) // 8)
    return f'<path class="arrow" d="M{x},{y} C{bend},{y} {bend},{v} {u},{v}"/>'


def draw_way(colour: str, at: int, boxes: dict[str, tuple[int, int]]) -> list[str]:
    """Draw the numbered stops of a row, joined by a line, with a word about each."""
    steps = WAYS[colour]
    spots = [(at, boxes[name][1] + HEIGHT // 2) for name, _ in steps]
    shapes = []
    for (x, y), (_, v) in pairwise(spots):
        bend = x - 15 - abs(v - y) // 9
        shapes.append(f'<path d="M{x},{y} C{bend},{y} {bend},{v} {x},{v}" stroke="{colour}"/>')
    for number, ((name, words), (x, y)) in enumerate(zip(steps, spots, strict=True), 1):
        shapes.append(f'<circle cx="{x}" cy="{y}" r="10" fill="{colour}"/>')
        shapes.append(f'<text class="number" x="{x}" y="{y + 4}">{number}</text>')
        shapes.append(f'<text class="word" x="{x + 18}" y="{y - 1}" fill="{colour}">{name}</text>')
        shapes.append(f'<text class="word" x="{x + 18}" y="{y + 12}">{escape(words)}</text>')
    return shapes


def draw_picture() -> str:
    """Draw the picture as SVG."""
    order = read_layers()
    boxes = place_boxes(order)
    height = TOP + len(order) * (HEIGHT + GAP)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1000 {height}" font-family="sans-serif" font-size="12">',
        "<title>Packages, their imports, and the path of a row</title>",
        "<style>.room {fill: #f4f6f8; stroke: #8795a1} .arrow {stroke: #8795a1; marker-end: url(#head)}"
        " path {fill: none; stroke-width: 1.4} .name, .number {text-anchor: middle} .number {fill: white}"
        " .head {font-weight: bold} .word {font-size: 11px}</style>",
        '<marker id="head" markerWidth="7" markerHeight="7" refX="5" refY="3" orient="auto">'
        '<path d="M0,0 L6,3 L0,6 z" style="fill: #8795a1"/></marker>',
        f'<rect width="1000" height="{height}" fill="white"/>',
    ]
    for x, colour, words in ((LEFT, "#334", "imports"), (530, FIT, "a row is fitted"), (780, PREDICT, "and predicted")):
        lines.append(f'<text class="head" x="{x}" y="28" fill="{colour}">{words}</text>')
    lines += [draw_arrow(boxes[upper], boxes[lower]) for upper, lower in find_arrows(order)]
    for name, (x, y) in boxes.items():
        lines.append(f'<rect class="room" x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5"/>')
        lines.append(f'<text class="name" x="{x + WIDTH // 2}" y="{y + 22}">{name}</text>')
    lines += [*draw_way(FIT, 540, boxes), *draw_way(PREDICT, 790, boxes), "</svg>"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(draw_picture(), encoding="utf-8")

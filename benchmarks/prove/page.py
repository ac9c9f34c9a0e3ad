"""The table of results in docs/reliability.md."""

from pathlib import Path
from typing import Any

from benchmarks.prove.proof import Proof

HELD = {True: "yes", False: "**no**", None: "not tried"}
BEGIN, END = "<!-- results of make prove -->", "<!-- end of results -->"


def cell(text: str) -> str:
    """One cell of a Markdown table."""
    return " ".join(text.replace("|", "/").replace("<", "&lt;").split())[:320]


def rendered(results: dict[str, Any], proofs: tuple[Proof, ...]) -> str:
    """The table and where it comes from."""
    about, done = results["about"], results["proofs"]
    rows = [
        f"| {cell(proof.kind)} | {cell(proof.claim)} | {each['tried']} | {HELD[each['held']]} | {cell(each['found'])} |"
        for proof in proofs
        if (each := done.get(proof.name)) is not None
    ]
    minutes = sum(each["seconds"] for each in done.values()) / 60.0
    share = "all trials" if about["share"] == 1.0 else f"{about['share']:.0%} of the trials of `make prove`"
    tried = sum(each["held"] is not None for each in done.values())
    lines = [
        f"{tried} of {len(proofs)} proofs could be tried, {share}, in {minutes:.0f} minutes on {about['machine']}; "
        f"load of the machine {about['load']:.1f} at the end, other programs included. Seed {about['seed']}, "
        f"{about['date']}.",
        "",
        "| kind | claim | tried | held | found |",
        "|---|---|---|---|---|",
        *rows,
    ]
    return "\n".join(lines)


def write(path: Path, results: dict[str, Any], proofs: tuple[Proof, ...]) -> None:
    """Replace the table of a page that has the two marks."""
    text = path.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n\n{rendered(results, proofs)}\n\n{END}{after}")

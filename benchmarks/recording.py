"""Run a benchmark on each device, and write its results to a JSON and a Markdown file."""

import argparse
import json
import platform
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch


def make_parser(about: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--device", choices=["cpu", "cuda"], default=None, help="default: cpu, and cuda where present")
    return parser


def time_call(call: Callable[[], object], repeat: int, warm: bool = True) -> float:
    """Return the shortest time of `repeat` calls, after one call that is not timed and may set things up."""
    if warm:
        call()
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def record(
    name: str,
    args: argparse.Namespace,
    measure: Callable[[str], list[dict]],
    targets: dict[str, float],
    on_cpu: str = "one thread",
) -> None:
    """Run `measure` on each device, on one thread; write <name>_<device>.json and .md, with the targets."""
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    for device in [args.device] if args.device else ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]:
        machine = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine()
        title = f"{name.title()} on {machine}, torch {torch.__version__}" + (f", {on_cpu}" if device == "cpu" else "")
        results = measure(device)
        content = json.dumps({"title": title, "results": results}, indent=1) + "\n"
        (args.out / f"{name}_{device}.json").write_text(content)
        text = "\n".join([f"# {title}", "", *_format_lines(results, targets if device == "cpu" else {})]) + "\n"
        (args.out / f"{name}_{device}.md").write_text(text)
        print(text)


def _format_lines(results: list[dict], targets: dict[str, float]) -> Iterable[str]:
    for row in results:
        shown = (f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items() if k != "what")
        asked = f" (asked: {targets[row['what']]:g})" if row["what"] in targets else ""
        yield f"- {row['what']}: {', '.join(shown)}{asked}"

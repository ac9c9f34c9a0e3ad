"""The functions that docs/architecture.md lists are called, in that order, one by the other."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType

import numpy as np
import pandas as pd
import pytest

import ddpn
from ddpn import CountRegressor

PACKAGE = str(Path(ddpn.__file__).parent)
PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
#: Per block, the lines: how far they are indented, a function, and its file.
LISTS = [
    [(len(indent), name, file) for indent, name, file in re.findall(r"^( *)(\S+) +(\S+)$", block, flags=re.MULTILINE)]
    for block in re.findall(r"^```text\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
]


def trace_first_calls(work: Callable[[], object]) -> dict[tuple[str, str], set[tuple[str, str]]]:
    """Call `work`; return the functions of ddpn in the order of their calls, each with those that had begun before."""
    calls: dict[CodeType, list[CodeType]] = {}

    def watch(frame, event, argument):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code not in calls:
            calls[code] = []
            while frame := frame.f_back:
                calls[code].append(frame.f_code)

    def describe(code: CodeType) -> tuple[str, str]:
        return code.co_filename.removeprefix(PACKAGE).replace("\\", "/").lstrip("/"), code.co_qualname

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(before)
    return {describe(code): set(map(describe, callers)) for code, callers in calls.items()}


@pytest.fixture(scope="module")
def traces() -> list[dict[tuple[str, str], set[tuple[str, str]]]]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=200), "b": rng.choice(["u", "v"], 200)})
    y = rng.poisson(np.exp(1.0 + 0.5 * X["a"]))
    # Kernels are compiled before the trace, which would take many times as long.
    model = CountRegressor(members=["glm", "constant"], random_state=0).fit(X, y)
    model.predict(X)
    return [trace_first_calls(lambda: model.fit(X, y)), trace_first_calls(lambda: model.predict(X))]


@pytest.mark.parametrize("number", [0, 1], ids=["fit", "predict"])
def test_the_listed_functions_are_called_in_this_order(traces, number):
    calls, outer = traces[number], list[tuple[int, tuple[str, str]]]()
    order = list(calls)
    lines = [(indent, (file, name)) for indent, name, file in LISTS[number]]
    for indent, function in lines:
        outer = [(depth, caller) for depth, caller in outer if depth < indent]
        assert {caller for _, caller in outer} <= calls[function], function
        outer.append((indent, function))
    assert [function for _, function in lines] == sorted((function for _, function in lines), key=order.index)

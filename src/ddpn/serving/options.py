"""What a request asks for besides its rows, and the limits that a server sets."""

import math
from dataclasses import dataclass
from typing import Any

from ddpn.runtime.errors import ConfigError
from ddpn.serving.problems import RequestError

#: Outputs per row; those of the first tuple are the default.
DEFAULT_OUTPUTS = ("mean", "median", "mode", "lower", "upper", "aleatoric", "epistemic", "stddev", "ood_pvalue", "ood")
MORE_OUTPUTS = ("ood_reasons", "distribution", "members")
OUTPUTS = (*DEFAULT_OUTPUTS, *MORE_OUTPUTS)
#: The most quantiles, and the largest count of `pmf`, per request.
MOST_QUANTILES, MOST_COUNTS = 99, 1000


@dataclass(frozen=True)
class Wanted:
    """What to predict per row: names of `OUTPUTS`, the coverage of intervals, quantiles, probabilities up to `pmf`."""

    outputs: tuple[str, ...] = DEFAULT_OUTPUTS
    coverage: float = 0.9
    quantiles: tuple[float, ...] = ()
    pmf: int | None = None


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a server.

    Parameters
    ----------
    max_rows : int
        Rows per request.
    max_bytes : int
        Bytes of a request's body.
    max_queue : int
        Requests that wait; more are refused with status 429.
    timeout : float
        Seconds from the arrival of a request to its answer; later ones get status 503.
    batch_rows : int
        Rows that are predicted together.
    batch_window : float
        Seconds that the first request waits for others to be predicted with.
    explain_rows : int
        Rows per request to explain.
    """

    max_rows: int = 1000
    max_bytes: int = 2_000_000
    max_queue: int = 256
    timeout: float = 30.0
    batch_rows: int = 256
    batch_window: float = 0.002
    explain_rows: int = 20

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            least = 0 if name == "batch_window" else 1e-3 if name == "timeout" else 1
            if not math.isfinite(value) or value < least:
                raise ConfigError(f"{name} must be at least {least:g}, got {value:g}.")


def wanted_of(document: dict[str, Any]) -> Wanted:
    """What a request asks for; raises a `RequestError` for anything unsupported.

    Parameters
    ----------
    document : dict
        The request, of any types.
    """
    coverage, pmf = document.get("coverage", 0.9), document.get("pmf")
    if not _is_number(coverage) or not 0.0 < coverage < 1.0:
        raise RequestError("coverage must be a number between 0 and 1, such as 0.9.")
    if pmf is not None and not (_is_number(pmf) and pmf == int(pmf) and 0 <= pmf <= MOST_COUNTS):
        raise RequestError(f"pmf must be an integer from 0 to {MOST_COUNTS}.")
    return Wanted(
        _outputs(document.get("outputs")),
        float(coverage),
        _quantiles(document.get("quantiles", [])),
        None if pmf is None else int(pmf),
    )


def _is_number(value: Any) -> bool:
    """Whether a value of JSON is a number that a float can hold."""
    if type(value) is int:
        return abs(value) < 2**63
    return type(value) is float and math.isfinite(value)


def _quantiles(levels: Any) -> tuple[float, ...]:
    if not isinstance(levels, list) or len(levels) > MOST_QUANTILES:
        raise RequestError(f"quantiles must be a list of at most {MOST_QUANTILES} numbers between 0 and 1.")
    if not all(_is_number(level) and 0.0 < level < 1.0 for level in levels):
        raise RequestError("quantiles must be numbers between 0 and 1, such as [0.1, 0.5, 0.9].")
    return tuple(map(float, levels))


def _outputs(names: Any) -> tuple[str, ...]:
    if names is None:
        return DEFAULT_OUTPUTS
    if not isinstance(names, list) or not names:
        raise RequestError(f"outputs must be a list of names, some of {', '.join(OUTPUTS)}.")
    for name in names:
        if not isinstance(name, str) or name not in OUTPUTS:
            got = repr(name[:40]) if isinstance(name, str) else "another value"
            raise RequestError(f"outputs must be some of {', '.join(OUTPUTS)}, got {got}.")
    return tuple(dict.fromkeys(names))

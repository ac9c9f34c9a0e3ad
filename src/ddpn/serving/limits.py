"""The limits that a server sets."""

import math
from dataclasses import dataclass

from ddpn.runtime.errors import ConfigError


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
                raise ConfigError(argument=name, must=f"be at least {least:g}", got=f"{value:g}")

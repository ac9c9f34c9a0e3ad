"""Logs as one JSON object per line, on standard error. They never have the content of a row."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any


class JsonLines(logging.Formatter):
    """A record as JSON: time, level, event and the fields of the record."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": when, "level": record.levelname.lower(), "event": record.getMessage()}
        line |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[0] is not None:
            # Not the message, which may have values of rows: where it happened is in the frames.
            line["error"] = record.exc_info[0].__name__
            line["at"] = _frames(record)
        return json.dumps(line)


def _frames(record: logging.LogRecord) -> list[str]:
    trace = record.exc_info[2] if record.exc_info else None
    found = []
    while trace is not None:
        code = trace.tb_frame.f_code
        found.append(f"{code.co_filename}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return found[-8:]


def configure(level: str) -> None:
    """Send the logs of the server and of uvicorn to standard error.

    Parameters
    ----------
    level : str
        "debug", "info", "warning" or "error".
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.captureWarnings(True)
    for name in ("ddpn.serving", "uvicorn", "py.warnings"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level.upper() if name != "uvicorn" else "WARNING")

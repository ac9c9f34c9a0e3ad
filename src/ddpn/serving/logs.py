"""Logs as one JSON object per line, on standard error. They never have the content of a row."""

import json
import logging
import sys
import traceback
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
            frames = traceback.extract_tb(record.exc_info[2])[-8:]
            line["at"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        return json.dumps(line)


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

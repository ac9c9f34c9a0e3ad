"""The command that runs: when it began, and which options it was given."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_RUNNING: ContextVar[Any] = ContextVar("running", default=None)


@contextmanager
def running(context: Any) -> Iterator[None]:
    """Within this, the command of this context is the one that runs."""
    token = _RUNNING.set(context)
    try:
        yield
    finally:
        _RUNNING.reset(token)


def command_start() -> float:
    """When the command began, as `time.monotonic` counts: when the program did, or now if no program runs it."""
    context = _RUNNING.get()
    started = None if context is None else context.find_object(float)
    return time.monotonic() if started is None else started


def typed_options() -> tuple[dict[str, str], set[str]]:
    """The options of the command that runs, by argument, and those that were given on the command line."""
    context = _RUNNING.get()
    if context is None:
        return {}, set()
    options = {each.name: max(each.opts, key=len) for each in context.command.params if each.opts[0].startswith("-")}
    return options, {name for name in options if _is_given(context, name)}


def _is_given(context: Any, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"

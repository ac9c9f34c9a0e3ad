"""Keep the warnings of a fit, so that they stay with the model."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def kept_warnings() -> Iterator[list[str]]:
    """The texts of the warnings that are shown in the block, each once; those for programmers are left out."""
    kept: list[str] = []
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            usual(message, category, *place, **more)
            if issubclass(category, UserWarning | RuntimeWarning) and str(message) not in kept:
                kept.append(str(message))

        warnings.showwarning = show
        yield kept

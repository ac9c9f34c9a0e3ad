"""The models of a server by name, and their replacement by new versions while requests are answered."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

from ddpn.runtime.errors import ConfigError, DDPNError
from ddpn.serving.middleware import Metrics
from ddpn.serving.model import ServedModel
from ddpn.storage.model_files import MANIFEST

_LOG = logging.getLogger("ddpn.serving")


def named_paths(given: list[str]) -> dict[str, Path]:
    """Model folders by name: of NAME=PATH, or the folder's name without its ending.

    >>> {name: str(path) for name, path in named_paths(["a/visits.model", "old=b/visits.model"]).items()}
    {'visits': 'a/visits.model', 'old': 'b/visits.model'}
    """
    found: dict[str, Path] = {}
    for word in given:
        name, equals, path = word.partition("=")
        place = Path(path) if equals else Path(word)
        name = name if equals else place.resolve().stem if place.name in ("", ".", "..") else place.stem
        if not name or not all(letter.isalnum() or letter in "-_." for letter in name):
            raise ConfigError(
                f"A model must have a name of letters, digits, '-', '_' and '.', got {name!r}. "
                f"Name it: NAME={path or word}."
            )
        if name in found:
            raise ConfigError(
                f"Two models are called {name!r}: {found[name]} and {place}. Name one of them: NAME={place}."
            )
        found[name] = place
    return found


class Catalogue:
    """Loaded models by name; the first one is the default.

    `columns` are those (exposure, upper) that models saved in Python do not know.
    """

    def __init__(self, paths: Mapping[str, str | PathLike[str]], metrics: Metrics, **columns: str | None) -> None:
        if not paths:
            raise ConfigError("A server needs at least one model.")
        self._columns, self._metrics = columns, metrics
        known = {name: Path(path) for name, path in paths.items()}
        self._seen = {name: _signature(path) for name, path in known.items()}
        self._models = {name: ServedModel(name, path, **columns) for name, path in known.items()}
        self._failed: dict[str, Any] = {}
        for model in self:
            metrics.model.labels(model.name).info({"version": model.version})
        #: Called after a new version of a model was loaded.
        self.on_version: Callable[[], None] = lambda: None

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models.values())

    async def watch(self, every: float) -> None:
        """Load new versions as they appear, looking for them every so many seconds, until cancelled."""
        while True:
            await asyncio.sleep(every)
            for name, model in list(self._models.items()):
                await self._refresh(name, model)

    async def _refresh(self, name: str, model: ServedModel) -> None:
        """Replace a model whose folder has changed; a version that cannot be loaded leaves the old one in place."""
        now = _signature(model.path)
        if now is None or now == self._seen[name]:
            return
        try:
            new = await asyncio.to_thread(ServedModel, name, model.path, **self._columns)
        except (DDPNError, OSError, ValueError, KeyError) as error:
            if self._failed.get(name) != now:  # tried again each time, as it may be half written, but reported once
                self._failed[name] = now
                self._metrics.reloads.labels(name, "failed").inc()
                _LOG.error("reload failed", extra={"fields": {"model": name, "error": str(error)}})
            return
        self._models[name], self._seen[name] = new, now
        self._metrics.reloads.labels(name, "loaded").inc()
        self._metrics.model.labels(name).info({"version": new.version})
        self.on_version()
        _LOG.info("reloaded", extra={"fields": {"model": name, "version": new.version}})


def _signature(path: Path) -> tuple[int, ...] | None:
    """What changes whenever a folder is written anew; None while there is none."""
    with suppress(OSError):
        found = (path / MANIFEST).stat()
        return found.st_mtime_ns, found.st_ino, found.st_size
    return None

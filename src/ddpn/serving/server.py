"""Run the server: open its socket, handle signals, and finish accepted requests when it stops."""

import signal
import socket
import threading
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from types import FrameType

import torch
import uvicorn

from ddpn.runtime.errors import ConfigError
from ddpn.serving.app import create_app
from ddpn.serving.middleware import Limits, configure_logs


def name_models(arguments: list[str]) -> dict[str, Path]:
    """Parse command-line arguments such as "a/visits.model" or "old=b/visits.model"; return model folders by name.

    Without "NAME=", the name is that of the folder, without its extension.

    >>> {name: str(path) for name, path in name_models(["a/visits.model", "old=b/visits.model"]).items()}
    {'visits': 'a/visits.model', 'old': 'b/visits.model'}
    """
    paths: dict[str, Path] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        folder = Path(path) if equals else Path(argument)
        name = name if equals else folder.resolve().stem if folder.name in ("", ".", "..") else folder.stem
        if not name or not all(letter.isalnum() or letter in "-_." for letter in name):
            raise ConfigError(
                f"The name of a model must consist of letters, digits, '-', '_' and '.', got {name!r}. "
                f"Give it a name: NAME={path or argument}."
            )
        if name in paths:
            raise ConfigError(
                f"Two models are called {name!r}: {paths[name]} and {folder}. Give one another name: NAME={folder}."
            )
        paths[name] = folder
    return paths


def open_socket(host: str, port: int) -> socket.socket:
    """Open a socket that accepts connections. With port 0, the operating system chooses a free port."""
    if not 0 <= port <= 65_535:
        raise ConfigError(argument="port", must="be a number from 0 to 65535", got=str(port))
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigError(f"Cannot listen at {host}:{port}: {error.strerror or error}.") from None


def serve(
    paths: Mapping[str, str | PathLike[str]],
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    limits: Limits | None = None,
    token: str | None = None,
    reload_every: float = 2.0,
    log_level: str = "info",
    on_start: Callable[[str], object] = print,
    **columns: str | None,
) -> None:
    """Serve models until SIGTERM or Ctrl-C, and then finish accepted requests.

    Parameters
    ----------
    paths : mapping of str to path
        Model folders by name; the first is the default.
    host, port
        The address to listen on. With port 0, the operating system chooses a free port.
    limits : Limits, optional
        Limits on requests. Default: `Limits()`.
    token : str, optional
        The bearer token that requests must contain. Default: none is needed.
    reload_every : float
        Seconds between two checks for new versions of the folders. 0 means never.
    log_level : str
        "debug", "info", "warning" or "error"; "info" logs every request.
    on_start : callable
        Called with the address as soon as connections are accepted.
    **columns
        The names of the columns with the exposure (`exposure`) and the upper bound (`upper`) of each row. They are
        needed for models that were saved in Python, because such models do not store the names.
    """
    configure_logs(log_level)
    limits = limits or Limits()
    # One thread predicts small batches fastest and leaves the other cores to other processes.
    torch.set_num_threads(1)
    with open_socket(host, port) as server_socket:
        app = create_app(paths, limits=limits, token=token, reload_every=reload_every, **columns)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=round(limits.timeout) + 1,
            h11_max_incomplete_event_size=65_536,
        )
        server = uvicorn.Server(config)

        def stop(number: int, frame: FrameType | None) -> None:
            server.should_exit = True

        # SIGTERM must end the server, not the process. When uvicorn is done it raises SIGTERM again, which this handler
        # receives.
        is_main = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGTERM, stop) if is_main else None
        try:
            address_host = f"[{host}]" if ":" in host else host
            # Connections wait in the socket until the server takes them.
            on_start(f"http://{address_host}:{server_socket.getsockname()[1]}")
            server.run(sockets=[server_socket])
        finally:
            if is_main:
                signal.signal(signal.SIGTERM, before)

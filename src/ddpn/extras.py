"""Optional dependencies: imported on use, with an error that names the extra to install. Imports no torch."""

from importlib import import_module
from typing import Any

from ddpn.errors import ConfigError


def import_extra(module: str, extra: str) -> Any:
    """Import `module`, or raise a `ConfigError` that names the extra it comes with.

    >>> import_extra("a_package_nobody_has", "data")
    Traceback (most recent call last):
    ddpn.errors.ConfigError: ddpn[data] is not installed: pip install 'ddpn[data]'
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(f"ddpn[{extra}] is not installed: pip install 'ddpn[{extra}]'") from error

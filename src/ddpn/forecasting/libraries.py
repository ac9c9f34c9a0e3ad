"""Base classes from libraries that may not be installed."""

from typing import Any

from ddpn.runtime.errors import ConfigError
from ddpn.runtime.extras import import_extra


def base_class(module: str, name: str, extra: str) -> Any:
    """A class to inherit from; without its library, a class that raises a `ConfigError` when it is instantiated.

    So modules with adapters can be imported for their documentation without the library.

    >>> class Adapter(base_class("a_package_nobody_has", "Base", "gluonts")):
    ...     pass
    >>> Adapter()
    Traceback (most recent call last):
    ddpn.runtime.errors.ConfigError: ddpn[gluonts] is not installed: pip install 'ddpn[gluonts]'
    """
    try:
        return getattr(import_extra(module, extra), name)
    except ConfigError as error:
        message = str(error)

    class Missing:
        def __new__(cls, *arguments: Any, **options: Any) -> Any:
            raise ConfigError(message)

    return Missing

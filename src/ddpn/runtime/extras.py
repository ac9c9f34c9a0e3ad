"""Import optional dependencies, and modules that need torch, only when they are used. Imports no torch."""

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.resources import files
from types import ModuleType
from typing import Any

from ddpn.runtime.errors import ConfigError


def import_extra(module: str, extra: str) -> ModuleType:
    """Import `module`; if it is not installed, raise a `ConfigError` that names the extra to install.

    >>> import_extra("a_package_nobody_has", "data")
    Traceback (most recent call last):
    ddpn.runtime.errors.ConfigError: ddpn[data] is not installed: pip install 'ddpn[data]'
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(f"ddpn[{extra}] is not installed: pip install 'ddpn[{extra}]'") from error


def import_on_use(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a `__getattr__` function for a package, which imports its attributes on first use.

    `package` is the name of the package, and `modules` maps each attribute to the module that defines it.

    >>> find = import_on_use("ddpn", {"sha256": "hashlib"})
    >>> find("sha256")(b"").name
    'sha256'
    >>> find("sha")
    Traceback (most recent call last):
    AttributeError: module 'ddpn' has no attribute 'sha'
    """

    def find_attribute(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return find_attribute


def base_class(module: str, name: str, extra: str) -> Any:
    """Import the class `name` of `module` to inherit from; if its library is missing, return a stand-in.

    The stand-in raises a `ConfigError` when it is instantiated. So a module can define subclasses even if the library
    is not installed, for example to build the documentation.

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
        def __new__(cls, *arguments: object, **options: object) -> Any:
            raise ConfigError(message)

    return Missing


def locate(name: str | os.PathLike[str], argument: str) -> str:
    """Resolve "package:NAME/FOLDER" to the path of a folder in an installed package; return other names unchanged.

    `argument` is the name of the argument in error messages.

    >>> locate("distilbert-base-cased", "pretrained")
    'distilbert-base-cased'
    """
    if not (path := os.fspath(name)).startswith("package:"):
        return path
    package, _, folder = path.removeprefix("package:").partition("/")
    if not all(part.isidentifier() for part in package.split(".")):
        raise ConfigError(argument=argument, must='be "package:NAME/FOLDER"', got=f'"{path}"')
    try:
        return str(files(package) / folder)
    except ModuleNotFoundError:
        raise ConfigError(f"{package} is not installed: pip install {package.replace('_', '-')}") from None

"""The errors that ddpn raises: whatever a user can cause is a `DDPNError` with one plain sentence."""

import errno


class DDPNError(Exception):
    """The base of every error that ddpn raises on purpose."""


class InputError(DDPNError, ValueError):
    """Invalid data, parameters or files."""


class ConfigError(DDPNError, ValueError):
    """An invalid option or combination of options."""


class TrainingError(DDPNError, RuntimeError):
    """A training that cannot continue."""


def machine_error(error: OSError) -> str:
    """The sentence for a disk or path error.

    Parameters
    ----------
    error : OSError
        What the operating system raised.
    """
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "The disk is full. Nothing was written."
    return f"{error.filename or 'A file'}: {error.strerror or error}."

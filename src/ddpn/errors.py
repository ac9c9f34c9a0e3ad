"""What ddpn raises: every error a user can cause is a `DDPNError` with one sentence and its remedy."""

import errno


class DDPNError(Exception):
    """Anything ddpn raises on purpose."""


class InputError(DDPNError, ValueError):
    """Data or parameters that no law can take."""


class ConfigError(DDPNError, ValueError):
    """An option or a combination of options that makes no sense."""


class TrainingError(DDPNError, RuntimeError):
    """A training that cannot go on."""


def of_the_machine(error: OSError) -> str:
    """The sentence for what a disk or a path would not do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            "the disk must have room for the output, got a full one. Nothing was written: free some space, try again."
        )
    where = f" {error.filename}" if error.filename else ""
    return f"the file{where} must be usable, got: {error.strerror or error}. Check the path and its permissions."

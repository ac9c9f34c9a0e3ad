"""What ddpn raises: every error a user can cause is a `DDPNError` with one sentence and its remedy."""


class DDPNError(Exception):
    """Anything ddpn raises on purpose."""


class InputError(DDPNError, ValueError):
    """Data or parameters that no law can take."""


class ConfigError(DDPNError, ValueError):
    """An option or a combination of options that makes no sense."""


class TrainingError(DDPNError, RuntimeError):
    """A training that cannot go on."""

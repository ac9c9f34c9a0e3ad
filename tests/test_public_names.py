"""Test what `import ddpn` offers."""

import ddpn


def test_dir_lists_the_public_names_and_nothing_else():
    assert dir(ddpn) == sorted(ddpn.__all__)
    assert all(getattr(ddpn, name).__module__.startswith("ddpn.") for name in dir(ddpn))

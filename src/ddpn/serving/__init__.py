"""Serve models over HTTP: `ddpn serve`, or `create_app` in a server of one's own. Needs the extra `serve`."""

from ddpn.serving.app import create_app
from ddpn.serving.options import Limits
from ddpn.serving.server import serve

__all__ = ["Limits", "create_app", "serve"]

"""Serve models over HTTP, with `ddpn serve` or with `create_app` in your own server. Needs the extra `serve`."""

from ddpn.runtime.extras import import_extra

for _module in ("fastapi", "prometheus_client", "uvicorn"):
    import_extra(_module, "serve")

from ddpn.serving.app import create_app  # noqa: E402
from ddpn.serving.middleware import Limits  # noqa: E402
from ddpn.serving.server import serve  # noqa: E402

__all__ = ["Limits", "create_app", "serve"]

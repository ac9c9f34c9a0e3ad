"""Export a fitted model as one ONNX file. With this file, ONNX Runtime predicts without Python, torch or ddpn.

Importing this package and calling `describe_onnx` imports no torch.
"""

from typing import TYPE_CHECKING

from ddpn.export.description import describe_onnx
from ddpn.runtime.extras import import_on_use

if TYPE_CHECKING:
    from ddpn.export.file import export_onnx

__all__ = ["describe_onnx", "export_onnx"]

__getattr__ = import_on_use(__name__, {"export_onnx": f"{__name__}.file"})

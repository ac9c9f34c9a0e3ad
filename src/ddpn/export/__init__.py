"""Export of a fitted model as one ONNX file, which any ONNX Runtime predicts from: no Python, torch or ddpn needed.

Importing this package and `describe_onnx` import no torch.
"""

from typing import TYPE_CHECKING

from ddpn.export.description import describe_onnx
from ddpn.runtime.extras import import_on_use

if TYPE_CHECKING:
    from ddpn.export.file import export_onnx

__all__ = ["describe_onnx", "export_onnx"]

__getattr__ = import_on_use(__name__, {"export_onnx": f"{__name__}.file"})

"""Export of a fitted model as one ONNX file, which any ONNX Runtime predicts from: no Python, torch or ddpn needed.

Importing this package and `describe_onnx` import no torch.
"""

from typing import TYPE_CHECKING, Any

from ddpn.export.description import describe_onnx

if TYPE_CHECKING:
    from ddpn.export.file import export_onnx

__all__ = ["describe_onnx", "export_onnx"]


def __getattr__(name: str) -> Any:
    if name == "export_onnx":
        from ddpn.export.file import export_onnx

        return export_onnx
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

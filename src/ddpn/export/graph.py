"""Build ONNX graphs from values that support Python's operators. Only this module imports onnx.

The kind of a value is the type of its elements: f (float64), i (int64), b (boolean) or s (string).
"""

from collections.abc import Callable, Hashable, Sequence
from types import ModuleType
from typing import Any, Union

import numpy as np
from numpy.typing import ArrayLike

from ddpn.runtime.extras import import_extra

#: Versions of both operator sets and of the file format, which ONNX Runtime 1.20 supports.
OPSET, ML_OPSET, IR_VERSION = 20, 3, 9
ML = "ai.onnx.ml"
#: The numpy type of each kind of value.
_DTYPES = {"f": np.float64, "i": np.int64, "b": np.bool_, "s": np.object_}

Operand = Union["Value", float, str, np.ndarray]


def onnx() -> ModuleType:
    """Import and return the package onnx, which is installed with `pip install ddpn[export]`."""
    return import_extra("onnx", "export")


def tensor_type(kind: str) -> int:
    """Return the number by which ONNX encodes the element type of a kind of value.

    The kinds are "f" (float64), "i" (int64), "b" (bool) and "s" (text).
    """
    types = onnx().TensorProto
    return {"f": types.DOUBLE, "i": types.INT64, "b": types.BOOL, "s": types.STRING}[kind]


def _make_operator(operator: str, kind: str | None = None) -> Callable[..., "Value"]:
    """Make a method of `Value` that adds a node with an ONNX operator, such as "Add", and returns its output.

    `kind` is the type of the result's elements: f (float64), i (int64), b (boolean) or s (string). Default: that of the
    value.
    """

    def method(self: "Value", *others: Operand) -> "Value":
        return self.op(operator, *others, kind=kind)

    return method


class Value:
    """An array in an ONNX graph: an input, a constant or the output of a node.

    Python's operators, such as +, add a node to the graph and return its output. `kind` is the type of the elements: f
    (float64), i (int64), b (boolean) or s (string).
    """

    def __init__(self, graph: "Graph", name: str, kind: str = "f") -> None:
        self.graph, self.name, self.kind = graph, name, kind

    def op(self, operator: str, *others: Operand, kind: str | None = None, **attributes: Any) -> "Value":
        """Add a node that applies an ONNX operator to this value and `others`, and return its output.

        `kind` is the type of the output's elements; by default, it is that of this value. `attributes` are those of the
        operator.
        """
        return self.graph.op(operator, self, *others, kind=kind or self.kind, **attributes)

    __add__ = __radd__ = _make_operator("Add")
    __mul__ = __rmul__ = _make_operator("Mul")
    __sub__, __truediv__, __neg__ = (_make_operator(name) for name in ("Sub", "Div", "Neg"))
    __and__, __or__, __invert__ = (_make_operator(name) for name in ("And", "Or", "Not"))
    __lt__, __le__ = _make_operator("Less", "b"), _make_operator("LessOrEqual", "b")
    __gt__, __ge__ = _make_operator("Greater", "b"), _make_operator("GreaterOrEqual", "b")
    equals, is_nan = _make_operator("Equal", "b"), _make_operator("IsNaN", "b")
    exp, log, sqrt, floor = (_make_operator(name) for name in ("Exp", "Log", "Sqrt", "Floor"))

    def __rsub__(self, other: Operand) -> "Value":
        return self.graph.value(other, self.kind).op("Sub", self)

    def __rtruediv__(self, other: Operand) -> "Value":
        return self.graph.value(other, self.kind).op("Div", self)

    def clip(self, low: Operand, high: Operand) -> "Value":
        """Limit elements to the range from `low` to `high`, which are broadcast. NaN stays NaN."""
        lowered = self.graph.where(self > high, high, self)
        return self.graph.where(lowered < low, low, lowered)

    def sum(self, axis: int) -> "Value":
        """Sum along an axis, and keep the axis with length 1."""
        return self.op("ReduceSum", self.graph.constant([axis]))

    def max(self, axis: int) -> "Value":
        """Compute the maximum along an axis, and keep the axis with length 1."""
        return self.op("ReduceMax", self.graph.constant([axis]))

    def cast(self, kind: str) -> "Value":
        """Convert the elements to another type: f (float64), i (int64), b (boolean) or s (string)."""
        return self.op("Cast", to=tensor_type(kind), kind=kind)

    def round_to_float32(self) -> "Value":
        """Round elements to float32 precision; the type stays float64."""
        single = self.op("Cast", to=onnx().TensorProto.FLOAT)
        return single.op("Cast", to=onnx().TensorProto.DOUBLE)

    def add_axes(self, *axes: int) -> "Value":
        """Insert axes of length 1 at these positions."""
        return self.op("Unsqueeze", self.graph.constant(list(axes)))

    def reshape(self, *shape: int) -> "Value":
        """Change the shape. A length of -1 is inferred from the other lengths."""
        return self.op("Reshape", self.graph.constant(list(shape)))

    def take(self, index: "Value | ArrayLike", axis: int = 1) -> "Value":
        """Select elements along an axis by their positions.

        If `index` is a single integer, the axis is removed.
        """
        return self.op("Gather", index if isinstance(index, Value) else self.graph.constant(index), axis=axis)

    def slice(self, start: int, end: int = 2**62, axis: int = 1) -> "Value":
        """Select the elements at the positions `start`, ..., `end` - 1 along an axis."""
        return self.op("Slice", *(self.graph.constant([x]) for x in (start, end, axis)))


class Graph:
    """An ONNX graph under construction, with its nodes in the order of execution.

    The body of a loop is a separate graph. It shares names and constants with the graph that contains the loop, which
    is its `parent`.
    """

    def __init__(self, parent: "Graph | None" = None) -> None:
        self.nodes: list[Any] = []
        self.inputs: list[tuple[str, str]] = []
        self._root: Graph = self if parent is None else parent._root
        self.constants: dict[Hashable, tuple[str, np.ndarray]] = {}
        self._count = 0
        #: Names of inputs and outputs, which nodes must not use.
        self.reserved: set[str] = set()

    def _new_name(self) -> str:
        """Return a name that no other value of the graph has."""
        root = self._root
        while True:
            root._count += 1
            name = f"v{root._count}"
            if name not in root.reserved:
                return name

    def input(self, name: str, kind: str) -> Value:
        """Add an input of the ONNX file with one element per row, and return it as a value of shape (rows,).

        `kind` is the type of its elements: f (float64), i (int64), b (boolean) or s (string).
        """
        self.inputs.append((name, kind))
        return Value(self, name, kind)

    def constant(self, values: ArrayLike, kind: str | None = None) -> Value:
        """Return a constant. Equal constants are stored only once.

        `kind` is the kind of its elements: f, i, b or s. By default, it follows from the type of `values`: i for
        integers, f for other numbers.
        """
        array = np.asarray(values)
        kind = kind or {"f": "f", "i": "i", "u": "i", "b": "b"}.get(array.dtype.kind, "s")
        array = array.astype(_DTYPES[kind])
        root = self._root
        key = (kind, array.shape, tuple(array.ravel()) if kind == "s" else array.tobytes())
        if key not in root.constants:
            root.constants[key] = (self._new_name(), array)
        return Value(self, root.constants[key][0], kind)

    def weights(self, values: np.ndarray) -> Value:
        """Return a constant that is stored as float32 to save space, and used as float64.

        All `values` must be exact in float32.
        """
        key = ("weights", values.shape, values.tobytes())
        if key not in self._root.constants:
            self._root.constants[key] = (self._new_name(), values.astype(np.float32))
        single = Value(self, self._root.constants[key][0])
        return single.op("Cast", to=onnx().TensorProto.DOUBLE)

    def value(self, operand: Operand, kind: str = "f") -> Value:
        """Convert a number, a string or an array to a constant of this kind. A `Value` is returned unchanged."""
        return operand if isinstance(operand, Value) else self.constant(operand, kind)

    def op(self, operator: str, *inputs: Operand, kind: str = "f", domain: str = "", **attributes: Any) -> Value:
        """Add a node with an ONNX operator that has one output, and return the output.

        `kind` is the type of the output's elements: f, i, b or s. `domain` is the set of operators: "" for ONNX's own,
        or `ML`. `attributes` are those of the operator.
        """
        return self.ops(operator, *inputs, kinds=(kind,), domain=domain, **attributes)[0]

    def ops(
        self, operator: str, *inputs: Operand, kinds: Sequence[str], domain: str = "", **attributes: Any
    ) -> list[Value]:
        """Add a node with an ONNX operator that has several outputs, and return the outputs.

        `kinds` has the type of the elements of each output: f, i, b or s. `domain` is the set of operators: "" for
        ONNX's own, or `ML`. Numbers among the inputs become constants with the element type of the first `Value` among
        them. `attributes` are those of the operator.
        """
        kind_of_first = next((value.kind for value in inputs if isinstance(value, Value)), "f")
        names = [self.value(value, kind_of_first).name for value in inputs]
        outputs = [Value(self, self._new_name(), kind) for kind in kinds]
        # Without names, ONNX Runtime 1.20 would give all nodes that it fuses the same name.
        output_names, name = [value.name for value in outputs], f"{operator} {outputs[0].name}"
        self.nodes.append(onnx().helper.make_node(operator, names, output_names, name, domain=domain, **attributes))
        return outputs

    def import_value(self, value: Value) -> Value:
        """Make a value of the graph that contains a loop usable in this graph, the body of the loop."""
        return Value(self, value.name, value.kind)

    def where(self, condition: Value, yes: Operand, no: Operand) -> Value:
        """Select elements of `yes` where the condition is true, and of `no` elsewhere."""
        kind = next((operand.kind for operand in (yes, no) if isinstance(operand, Value)), "f")
        return self.op("Where", condition, self.value(yes, kind), self.value(no, kind), kind=kind)

    def concat(self, values: Sequence[Value], axis: int = 1) -> Value:
        """Concatenate values along an axis. Default: along the columns."""
        return values[0] if len(values) == 1 else self.op("Concat", *values, kind=values[0].kind, axis=axis)

    def loop(self, times: Value, body: Callable[["Graph", Value], Value]) -> Value:
        """Add a loop that evaluates `body(graph, number)` for the numbers 0, ..., times - 1; return all results.

        `times` is an integer, a value of shape (). The results are stacked along a new first axis. The body must add
        its nodes to the `graph` that it is passed. It gets values of the surrounding graph by `graph.import_value`.
        """
        inner = Graph(self)
        number, go_on = Value(inner, self._new_name(), "i"), Value(inner, self._new_name(), "b")
        result = body(inner, number)
        go_on_output = inner.op("Identity", go_on, kind="b")
        helper = onnx().helper
        infos = [helper.make_tensor_value_info(value.name, tensor_type(value.kind), []) for value in (number, go_on)]
        outputs = [
            helper.make_tensor_value_info(go_on_output.name, tensor_type("b"), []),
            helper.make_tensor_value_info(result.name, tensor_type(result.kind), None),
        ]
        graph = helper.make_graph(inner.nodes, self._new_name(), infos, outputs)
        return self.op("Loop", times, self.constant(True), kind=result.kind, body=graph)

    def model(self, outputs: Sequence[tuple[str, Value, tuple[Any, ...]]], name: str) -> Any:
        """Return the complete ONNX model, an `onnx.ModelProto`. Call this method once, as the last one.

        Each output is a triple of a name, a value, and a shape without the axis of rows. `name` is the name of the
        graph.
        """
        helper = onnx().helper
        for output, value, _ in outputs:
            self.nodes.append(helper.make_node("Identity", [value.name], [output]))
        inputs = [helper.make_tensor_value_info(n, tensor_type(kind), ["rows"]) for n, kind in self.inputs]
        infos = [helper.make_tensor_value_info(n, tensor_type(v.kind), ["rows", *shape]) for n, v, shape in outputs]
        constants = [_make_tensor(constant_name, array) for constant_name, array in self.constants.values()]
        graph = helper.make_graph(self.nodes, name, inputs, infos, constants)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(ML, ML_OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="ddpn")


def _make_tensor(name: str, array: np.ndarray) -> Any:
    if array.dtype == np.object_:
        content = [str(text).encode() for text in array.ravel()]
        return onnx().helper.make_tensor(name, tensor_type("s"), list(array.shape), content)
    return onnx().numpy_helper.from_array(array, name)

"""A small writer of ONNX graphs: values that have the operators of Python. The only file that imports onnx."""

from collections.abc import Callable, Hashable, Sequence
from types import ModuleType
from typing import Any, Union

import numpy as np
from numpy.typing import ArrayLike

from ddpn.runtime.extras import import_extra

#: Versions of the two sets of operators and of the file format; ONNX Runtime 1.20 reads all of them.
OPSET, ML_OPSET, IR_VERSION = 20, 3, 9
ML = "ai.onnx.ml"
#: numpy's type of each kind of value.
_DTYPES = {"f": np.float64, "i": np.int64, "b": np.bool_, "s": np.object_}

Operand = Union["Value", float, str, np.ndarray]


def onnx() -> ModuleType:
    """The onnx package, which an extra installs."""
    return import_extra("onnx", "export")


def element_type(kind: str) -> int:
    """The number by which ONNX knows a kind of value: f (float64), i (int64), b (boolean) or s (text)."""
    types = onnx().TensorProto
    return {"f": types.DOUBLE, "i": types.INT64, "b": types.BOOL, "s": types.STRING}[kind]


def _element_wise(operator: str, kind: str | None = None) -> Callable[..., "Value"]:
    """A method of `Value` that adds a node of this operator, whose result is of another kind if one is given."""

    def method(self: "Value", *others: Operand) -> "Value":
        return self.op(operator, *others, kind=kind)

    return method


class Value:
    """The result of a node, an input or a constant of a graph; `kind` is as in `element_type`."""

    def __init__(self, graph: "Graph", name: str, kind: str = "f") -> None:
        self.graph, self.name, self.kind = graph, name, kind

    def op(self, operator: str, *others: Operand, kind: str | None = None, **attributes: Any) -> "Value":
        """A node with this value as its first input."""
        return self.graph.op(operator, self, *others, kind=kind or self.kind, **attributes)

    __add__ = __radd__ = _element_wise("Add")
    __mul__ = __rmul__ = _element_wise("Mul")
    __sub__, __truediv__, __neg__ = (_element_wise(name) for name in ("Sub", "Div", "Neg"))
    __and__, __or__, __invert__ = (_element_wise(name) for name in ("And", "Or", "Not"))
    __lt__, __le__ = _element_wise("Less", "b"), _element_wise("LessOrEqual", "b")
    __gt__, __ge__ = _element_wise("Greater", "b"), _element_wise("GreaterOrEqual", "b")
    equals, is_nan = _element_wise("Equal", "b"), _element_wise("IsNaN", "b")
    exp, log, sqrt, floor = (_element_wise(name) for name in ("Exp", "Log", "Sqrt", "Floor"))

    def __rsub__(self, other: Operand) -> "Value":
        return self.graph.value(other, self.kind).op("Sub", self)

    def __rtruediv__(self, other: Operand) -> "Value":
        return self.graph.value(other, self.kind).op("Div", self)

    def clip(self, low: Operand, high: Operand) -> "Value":
        """Elements within bounds, which may be values that broadcast; NaN stays NaN."""
        lowered = self.graph.where(self > high, high, self)
        return self.graph.where(lowered < low, low, lowered)

    def sum(self, axis: int) -> "Value":
        """Sums along an axis, which is kept."""
        return self.op("ReduceSum", self.graph.constant([axis]))

    def max(self, axis: int) -> "Value":
        """The largest element along an axis, which is kept."""
        return self.op("ReduceMax", self.graph.constant([axis]))

    def cast(self, kind: str) -> "Value":
        """The same elements as another kind."""
        return self.op("Cast", to=element_type(kind), kind=kind)

    def rounded_to_float32(self) -> "Value":
        """The nearest float32 of each element, as float64."""
        single = self.op("Cast", to=onnx().TensorProto.FLOAT)
        return single.op("Cast", to=onnx().TensorProto.DOUBLE)

    def unsqueezed(self, *axes: int) -> "Value":
        """With axes of length 1 added at these positions."""
        return self.op("Unsqueeze", self.graph.constant(list(axes)))

    def reshaped(self, *shape: int) -> "Value":
        """In another shape."""
        return self.op("Reshape", self.graph.constant(list(shape)))

    def take(self, index: "Value | ArrayLike", axis: int = 1) -> "Value":
        """Elements at positions along an axis; a single position removes the axis."""
        return self.op("Gather", index if isinstance(index, Value) else self.graph.constant(index), axis=axis)

    def at(self, start: int, end: int = 2**62, axis: int = 1) -> "Value":
        """The columns from `start` up to `end` of a matrix, or elements along another axis."""
        return self.op("Slice", *(self.graph.constant([x]) for x in (start, end, axis)))


class Graph:
    """Nodes in order; a graph inside a loop shares names and constants with the one around it."""

    def __init__(self, parent: "Graph | None" = None) -> None:
        self.nodes: list[Any] = []
        self.inputs: list[tuple[str, str]] = []
        self._root: Graph = self if parent is None else parent._root
        self.constants: dict[Hashable, tuple[str, np.ndarray]] = {}
        self._count = 0
        #: Names of inputs and outputs, which no node of its own may have.
        self.reserved: set[str] = set()

    def _name(self) -> str:
        root = self._root
        while True:
            root._count += 1
            name = f"v{root._count}"
            if name not in root.reserved:
                return name

    def input(self, name: str, kind: str) -> Value:
        """An input with one element per row."""
        self.inputs.append((name, kind))
        return Value(self, name, kind)

    def constant(self, values: ArrayLike, kind: str | None = None) -> Value:
        """A constant; integers are int64, other numbers float64 (or as `kind` says). Equal ones are stored once."""
        array = np.asarray(values)
        kind = kind or {"f": "f", "i": "i", "u": "i", "b": "b"}.get(array.dtype.kind, "s")
        array = array.astype(_DTYPES[kind])
        root = self._root
        key = (kind, array.shape, tuple(array.ravel()) if kind == "s" else array.tobytes())
        if key not in root.constants:
            root.constants[key] = (self._name(), array)
        return Value(self, root.constants[key][0], kind)

    def weights(self, values: np.ndarray) -> Value:
        """A float64 constant that is stored as float32, which must lose nothing."""
        key = ("weights", values.shape, values.tobytes())
        if key not in self._root.constants:
            self._root.constants[key] = (self._name(), values.astype(np.float32))
        single = Value(self, self._root.constants[key][0])
        return single.op("Cast", to=onnx().TensorProto.DOUBLE)

    def value(self, operand: Operand, kind: str = "f") -> Value:
        """An operand as a value; numbers become constants of this kind."""
        return operand if isinstance(operand, Value) else self.constant(operand, kind)

    def op(self, operator: str, *inputs: Operand, kind: str = "f", domain: str = "", **attributes: Any) -> Value:
        """Add a node with one output."""
        return self.ops(operator, *inputs, kinds=(kind,), domain=domain, **attributes)[0]

    def ops(
        self, operator: str, *inputs: Operand, kinds: Sequence[str], domain: str = "", **attributes: Any
    ) -> list[Value]:
        """Add a node with several outputs; numbers among the inputs become constants of the kind of the first value."""
        own = next((each.kind for each in inputs if isinstance(each, Value)), "f")
        names = [self.value(each, own).name for each in inputs]
        outputs = [Value(self, self._name(), kind) for kind in kinds]
        # Nodes are named, as ONNX Runtime 1.20 gives nodes that it fuses the same name otherwise.
        made, name = [each.name for each in outputs], f"{operator} {outputs[0].name}"
        self.nodes.append(onnx().helper.make_node(operator, names, made, name, domain=domain, **attributes))
        return outputs

    def use(self, value: Value) -> Value:
        """A value of the graph around this one, for nodes of this one."""
        return Value(self, value.name, value.kind)

    def where(self, condition: Value, yes: Operand, no: Operand) -> Value:
        """Elements of `yes` where the condition holds, of `no` elsewhere."""
        kind = next((each.kind for each in (yes, no) if isinstance(each, Value)), "f")
        return self.op("Where", condition, self.value(yes, kind), self.value(no, kind), kind=kind)

    def concat(self, values: Sequence[Value], axis: int = 1) -> Value:
        """Values side by side."""
        return values[0] if len(values) == 1 else self.op("Concat", *values, kind=values[0].kind, axis=axis)

    def loop(self, times: Value, body: Callable[["Graph", Value], Value]) -> Value:
        """What `body(graph, number)` returns for the numbers 0, 1, ..., stacked along a new first axis.

        The body may use values of this graph.
        """
        inner = Graph(self)
        number, go_on = Value(inner, self._name(), "i"), Value(inner, self._name(), "b")
        found = body(inner, number)
        onward = inner.op("Identity", go_on, kind="b")
        helper = onnx().helper
        infos = [helper.make_tensor_value_info(each.name, element_type(each.kind), []) for each in (number, go_on)]
        outputs = [
            helper.make_tensor_value_info(onward.name, element_type("b"), []),
            helper.make_tensor_value_info(found.name, element_type(found.kind), None),
        ]
        graph = helper.make_graph(inner.nodes, self._name(), infos, outputs)
        return self.op("Loop", times, self.constant(True), kind=found.kind, body=graph)

    def model(self, outputs: Sequence[tuple[str, Value, tuple[Any, ...]]], name: str) -> Any:
        """The finished model: outputs by name, with their shapes after the number of rows."""
        helper = onnx().helper
        for output, value, _ in outputs:
            self.nodes.append(helper.make_node("Identity", [value.name], [output]))
        inputs = [helper.make_tensor_value_info(n, element_type(kind), ["rows"]) for n, kind in self.inputs]
        infos = [helper.make_tensor_value_info(n, element_type(v.kind), ["rows", *shape]) for n, v, shape in outputs]
        constants = [_tensor(known, array) for known, array in self.constants.values()]
        graph = helper.make_graph(self.nodes, name, inputs, infos, constants)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(ML, ML_OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="ddpn")


def _tensor(name: str, array: np.ndarray) -> Any:
    if array.dtype == np.object_:
        content = [str(each).encode() for each in array.ravel()]
        return onnx().helper.make_tensor(name, element_type("s"), list(array.shape), content)
    return onnx().numpy_helper.from_array(array, name)

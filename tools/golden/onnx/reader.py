"""Writes tests/golden/onnx/reader: an ONNX model by the onnx package with every way to store a
tensor, and what the onnx package itself reads back from it.

  python tools/golden/onnx/reader.py tests/golden/onnx/reader
"""

import json
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OUT = sys.argv[1]
VALUES = [0, 1, -1.5, 2, 3.25, -7]
TYPES = {
    "float": TensorProto.FLOAT, "double": TensorProto.DOUBLE, "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16, "int8": TensorProto.INT8, "uint8": TensorProto.UINT8,
    "int16": TensorProto.INT16, "uint16": TensorProto.UINT16, "int32": TensorProto.INT32,
    "uint32": TensorProto.UINT32, "int64": TensorProto.INT64, "uint64": TensorProto.UINT64,
    "bool": TensorProto.BOOL, "uint4": TensorProto.UINT4, "int4": TensorProto.INT4,
}


def values_for(name):
    if name in ("float", "double", "float16", "bfloat16"):
        return np.array(VALUES)
    if name == "bool":
        return np.array([1, 0, 1, 1, 0, 0])
    if name.startswith("u"):
        return np.array([0, 1, 15, 7, 3, 9])
    return np.array([0, 1, -8, 7, -3, 5])


def main():
    os.makedirs(OUT, exist_ok=True)
    tensors, expected = [], {}
    for name, kind in TYPES.items():
        for raw in (False, True):
            # Six elements, or five: a half-filled last byte of four-bit types.
            values = values_for(name)[: 6 if raw else 5]
            dims = [2, 3] if raw else [5]
            typed = helper.make_tensor(f"{name}.typed", kind, dims, values)
            tensor = typed
            if raw:
                array = numpy_helper.to_array(typed).reshape(dims)
                tensor = numpy_helper.from_array(array, f"{name}.raw")
                assert tensor.HasField("raw_data") and tensor.data_type == kind
            tensors.append(tensor)
            read = numpy_helper.to_array(tensor).astype(np.float64)
            expected[tensor.name] = {"type": name, "dims": dims, "values": read.ravel().tolist()}
    external = numpy_helper.from_array(np.arange(8, dtype=np.float32).reshape(2, 4), "outside")
    expected["outside"] = {"type": "float", "dims": [2, 4], "values": list(map(float, range(8)))}
    tensors.append(external)

    constants = {
        "c.value": {"value": helper.make_tensor("", TensorProto.FLOAT, [2], [1.5, -2])},
        "c.float": {"value_float": 0.25}, "c.int": {"value_int": -3},
        "c.floats": {"value_floats": [1.0, 2.0]}, "c.ints": {"value_ints": [4, -5, 6]},
    }
    nodes = [helper.make_node("Constant", [], [k], name=k, **v) for k, v in constants.items()]
    expected["c.value"] = {"type": "float", "dims": [2], "values": [1.5, -2]}
    expected["c.float"] = {"type": "float", "dims": [], "values": [0.25]}
    expected["c.int"] = {"type": "int64", "dims": [], "values": [-3]}
    expected["c.floats"] = {"type": "float", "dims": [2], "values": [1, 2]}
    expected["c.ints"] = {"type": "int64", "dims": [3], "values": [4, -5, 6]}

    nodes.append(helper.make_node("MatMul", ["x", "outside"], ["product"], name="multiply"))
    nodes.append(helper.make_node("Mul", ["product", "c.float"], ["scaled"], name="scale"))
    nodes.append(helper.make_node(
        "Pad", ["scaled", "", "c.float"], ["y"], name="attributes", domain="test.domain", an_int=-7,
        a_float=0.5, a_string="text", ints=[1, -2], floats=[0.5, 2.0], strings=["a", "b"],
        a_graph=helper.make_graph([], "inner", [], [])))
    graph = helper.make_graph(
        nodes, "reader",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch_size", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch_size", 4])],
        initializer=tensors,
        value_info=[helper.make_tensor_value_info("scaled", TensorProto.FLOAT, ["batch_size", 4])])
    model = helper.make_model(
        graph, producer_name="a producer", producer_version="1.2", ir_version=10,
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("test.domain", 3)])
    helper.set_model_props(model, {"key": "a value"})
    onnx.external_data_helper.set_external_data(external, "weights.data", offset=64, length=32)
    outside = model.graph.initializer[len(tensors) - 1]
    onnx.external_data_helper.set_external_data(outside, "weights.data", offset=64, length=32)
    raw = outside.raw_data
    outside.ClearField("raw_data")
    with open(os.path.join(OUT, "weights.data"), "wb") as f:
        f.write(b"\xaa" * 64 + raw + b"\xbb" * 8)
    with open(os.path.join(OUT, "model.onnx"), "wb") as f:
        f.write(model.SerializeToString(deterministic=True))
    with open(os.path.join(OUT, "expected.json"), "w") as f:
        json.dump(expected, f, indent=1)
        f.write("\n")


main()

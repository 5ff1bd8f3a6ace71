"""Writes tests/golden/onnx/slow/model.onnx: a decoder that takes for ever, in steps of microseconds.

  python tools/golden/onnx/slow.py tests/golden/onnx/slow/model.onnx
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

VOCAB, WIDTH = 8, 4


def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def constant(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


body = helper.make_graph(
    [helper.make_node("MatMul", ["before", "weight"], ["product"]),
     helper.make_node("Tanh", ["product"], ["after"]),
     helper.make_node("Identity", ["on"], ["still_on"])],
    "body",
    [value("i", TensorProto.INT64, []), value("on", TensorProto.BOOL, []),
     value("before", TensorProto.FLOAT, None)],
    [value("still_on", TensorProto.BOOL, []), value("after", TensorProto.FLOAT, None)])
graph = helper.make_graph(
    [helper.make_node("Gather", ["table", "input_ids"], ["embedded"]),
     helper.make_node("Loop", ["trips", "yes", "embedded"], ["turned"], body=body),
     helper.make_node("MatMul", ["turned", "head"], ["logits"])],
    "slow", [value("input_ids", TensorProto.INT64, [1, "tokens"])],
    [value("logits", TensorProto.FLOAT, [1, "tokens", VOCAB])],
    [constant("weight", np.eye(WIDTH, dtype=np.float32)),
     constant("trips", np.int64(2**40)), constant("yes", True),
     constant("table", np.ones((VOCAB, WIDTH), np.float32)),
     constant("head", np.ones((WIDTH, VOCAB), np.float32))])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
onnx.checker.check_model(model)
onnx.save(model, sys.argv[1])

#!/usr/bin/env python3
"""Write small GGUF files with gguf-py: every kind of key-value, a custom alignment, a file split in two.

usage: make_tiny.py OUT      Needs: gguf, numpy.
"""
import pathlib
import sys

import numpy as np
from gguf import GGMLQuantizationType as T, GGUFValueType as V, GGUFWriter, quants

out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def tensors(w):
    rows = np.arange(64, dtype=np.float32).reshape(2, 32) / 8 - 4
    w.add_tensor("f32", np.arange(6, dtype=np.float32).reshape(2, 3))
    w.add_tensor("f16", np.arange(6, dtype=np.float16).reshape(1, 2, 3))
    w.add_tensor("bf16", quants.quantize(rows, T.BF16), raw_dtype=T.BF16)
    w.add_tensor("q8_0", quants.quantize(rows, T.Q8_0), raw_dtype=T.Q8_0)
    w.add_tensor("q4_0", quants.quantize(rows, T.Q4_0), raw_dtype=T.Q4_0)
    w.add_tensor("i32", np.array([-1, 0, 2**31 - 1], np.int32))
    w.add_tensor("f64", np.array([0.1, -2.0], np.float64))


w = GGUFWriter(out / "tiny.gguf", "tiny")
w.add_uint8("v.u8", 255)
w.add_int8("v.i8", -128)
w.add_uint16("v.u16", 65535)
w.add_int16("v.i16", -32768)
w.add_uint32("v.u32", 2**32 - 1)
w.add_int32("v.i32", -2**31)
w.add_uint64("v.u64", 2**64 - 1)
w.add_int64("v.i64", -2**63)
w.add_float32("v.f32", 1e-5)
w.add_float64("v.f64", 0.1)
w.add_bool("v.bool", True)
w.add_string("v.string", "grüß 世界")
w.add_array("a.i32", [-1, 0, 7])
w.add_array("a.f32", [0.5, -1.25])
w.add_array("a.bool", [True, False])
w.add_array("a.string", ["", "a", "▁the"])
w.add_array("a.long", list(range(100)))
tensors(w)
finish(w)

w = GGUFWriter(out / "tiny-aligned.gguf", "tiny")
w.add_custom_alignment(256)
tensors(w)
finish(w)

w = GGUFWriter(out / "tiny-split.gguf", "tiny", split_max_tensors=4)
w.add_string("v.string", "only in the first part")
tensors(w)
finish(w)

#!/usr/bin/env python3
"""Write tests/golden/quant/TYPE.bin: blocks of random bytes and what gguf-py (and torch for 8-bit floats) make of them.

usage: make.py OUT      Needs: gguf, numpy, torch.

A file holds n blocks as they lie in a GGUF file, then their elements as float32. The codes are random; the scales are finite
halves of every size (also zero, negative and subnormal). The first block is all zero bits and the second all ones, but for
their scales. An 8-bit float's file holds all 256 bytes.
"""
import pathlib
import sys

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T, quants

# Where a block keeps its fp16 scales. (IQ1_M spreads one over four words; MXFP4 and NVFP4 have 8-bit scales: any byte does.)
HALVES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2],
          T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ2_XXS: [0], T.IQ2_XS: [0], T.IQ2_S: [0], T.IQ3_XXS: [0], T.IQ3_S: [0], T.IQ1_S: [0],
          T.IQ1_M: [], T.IQ4_NL: [0], T.IQ4_XS: [0], T.TQ1_0: [52], T.TQ2_0: [64], T.MXFP4: [], T.NVFP4: []}
SPECIAL = [0x0000, 0x8000, 0x0001, 0x83ff, 0x3c00, 0xbc00]  # zeros, subnormals, one, minus one


def halves(rng, n):
    bits = np.concatenate([np.array(SPECIAL, np.uint16), rng.normal(0, 0.02, n).astype(np.float16).view(np.uint16)])
    return bits[rng.permutation(len(bits))[:n]] if n < len(bits) else bits[:n]


def blocks(rng, kind, n):
    elements, size = GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (n, size), dtype=np.uint8)
    data[0], data[1] = 0, 255
    for at in HALVES[kind]:
        data[:, at:at + 2] = halves(rng, n).view(np.uint8).reshape(n, 2)
    if kind == T.IQ1_M:
        scale = halves(rng, n)
        words = data[:, 48:56].copy().view(np.uint16)
        for i in range(4):
            words[:, i] = (words[:, i] & 0x0fff) | (((scale >> (4 * i)) & 15) << 12)
        data[:, 48:56] = words.view(np.uint8)
    return data


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(2024)
    for kind in HALVES:
        elements, size = GGML_QUANT_SIZES[kind]
        data = blocks(rng, kind, 6 if elements == 256 else 24)
        values = quants.dequantize(data, kind).astype(np.float32)
        assert not np.isnan(values).any() and values.size == len(data) * elements, kind
        (out / f"{kind.name}.bin").write_bytes(data.tobytes() + values.astype("<f4").tobytes())
    every = torch.arange(256, dtype=torch.uint8)
    for name, dtype in (("F8_E4M3", torch.float8_e4m3fn), ("F8_E5M2", torch.float8_e5m2), ("F8_E8M0", torch.float8_e8m0fnu)):
        values = every.view(dtype).float().numpy()
        (out / f"{name}.bin").write_bytes(every.numpy().tobytes() + values.astype("<f4").tobytes())


main()

#!/usr/bin/env python3
"""Write src/quant/iq_grids.inc: the grids of the IQ1, IQ2 and IQ3 formats as gguf-py holds them.

usage: make_iq_grids.py > src/quant/iq_grids.inc      Needs: gguf.

gguf-py packs a coordinate into 2 bits (IQ1, IQ2: eight a point) or into 4 (IQ3: four a point), lowest
first, so that a point is one little-endian 16-bit word. The words are written as they are.
"""
import struct

from gguf import quants

GRIDS = [("kIq2XxsPoints", quants.IQ2_XXS), ("kIq2XsPoints", quants.IQ2_XS), ("kIq2SPoints", quants.IQ2_S),
         ("kIq3XxsPoints", quants.IQ3_XXS), ("kIq3SPoints", quants.IQ3_S), ("kIq1SPoints", quants.IQ1_S)]

print("// Written by tools/quant/make_iq_grids.py; do not edit.")
for name, cls in GRIDS:
    points, coordinates = cls.grid_shape
    data = bytes.fromhex(cls.grid_hex.decode())
    words = struct.unpack(f"<{points}H", data)
    print(f"inline constexpr uint16_t {name}[{points}] = {{")
    for i in range(0, points, 12):
        print("    " + ", ".join(f"0x{w:04x}" for w in words[i:i + 12]) + ",")
    print("};")

#!/usr/bin/env python3
"""The repository's own share of the ONNX Runtime goldens: a few small cases of what make.py records.

    python make.py --profile small.json --out ALL
    python small.py ALL ../../../tests/golden/ort-ops
"""
import hashlib, json, os, sys

CASES = """moe_small_swiglu qmoe_small_int8_block16 qmoe_small_int4_channel_f16 qmoe_small_int4_sm80
mm_small_int4_acc4_zp mm_int4_floatzp_f16 gqa_windowed_cache_step3 gqa_small_qk_logits gqa_small_qk_weights rot_small_partial
gbq_uint4_odd rms_bf16 skip_bias_sum""".split()
REFUSED = "mm_bad_block48 rms_bad_scale".split()
UNSAFE = "gqa_unsafe_window0 qmoe_unsafe_silu_with_fusion1".split()
LAYOUTS = "sm80_int4_16x64 sm80_int8_16x64".split()
FILE = "ort-ops.safetensors"


def read(path):
    with open(path, "rb") as f:
        blob = f.read()
    n = int.from_bytes(blob[:8], "little")
    return json.loads(blob[8:8 + n]), blob[8 + n:]


def keys(entry):
    if "raw" in entry:
        return [entry["raw"], entry["tiled"]]
    outs = entry.get("outputs", [])
    return [i["tensor"] for i in entry["inputs"]] + [o["tensor"] for o in outs] + [o["mask"] for o in outs if "mask" in o]


def main(source, out):
    with open(os.path.join(source, "manifest.json")) as f:
        manifest = json.load(f)
    stores = {name: read(os.path.join(source, name)) for name in manifest["files"]}
    lists = {}
    for name, ids in (("cases", CASES), ("refused", REFUSED), ("unsafe", UNSAFE), ("layouts", LAYOUTS)):
        lists[name] = [e for e in manifest[name] if e["id"] in ids]
        assert len(lists[name]) == len(ids), name
    head, chunks, at = {}, [], 0
    for entries in lists.values():
        for entry in entries:
            directory, data = stores[entry["file"]]
            for key in keys(entry):
                begin, end = directory[key]["data_offsets"]
                head[key] = {**directory[key], "data_offsets": [at, at + end - begin]}
                at += end - begin
                chunks.append(data[begin:end])
            entry["file"] = FILE
    raw = json.dumps(head, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    blob = len(raw).to_bytes(8, "little") + raw + b"".join(chunks)
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, FILE), "wb") as f:
        f.write(blob)
    manifest["files"] = {FILE: {"bytes": len(blob), "sha256": hashlib.sha256(blob).hexdigest()}}
    with open(os.path.join(out, "manifest.json"), "w") as f:
        f.write(json.dumps({k: v for k, v in manifest.items() if k not in lists}, indent=1)[:-2])
        for name, entries in lists.items():
            f.write(',\n "%s": [\n  ' % name + ",\n  ".join(json.dumps(e, separators=(",", ":")) for e in entries) + "\n ]")
        f.write("\n}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

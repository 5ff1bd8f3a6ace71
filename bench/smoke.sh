#!/bin/bash
# Everything here runs once on a tiny model, so that it is not found broken on the day of a measurement.
# No timing is asserted.   usage: smoke.sh BUILD_DIR
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: smoke.sh BUILD_DIR}
model=tests/golden/gguf/llama-Q4_0.gguf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$build/lockstep" bench "$model" --rounds 1
"$build/lockstep" bench "$model" --threads 2 --prompt 64 --decode 16 --rounds 2 --json >"$work/bench.json"
python3 - "$work/bench.json" <<'PY'
import json, sys
run = json.load(open(sys.argv[1]))
for key in ("prefill_tps", "prefill_tps_min", "prefill_tps_max", "decode_tps", "decode_tps_at_depth", "load_ms", "peak_bytes"):
    assert run[key] > 0, (key, run)
assert run["machine"]["read_bytes_per_second"] > 0
PY
# A folder without rivals: the table then says so.
bench/rivals.sh --lockstep "$build/lockstep" --rounds 1 --threads 1 --prompts 32,64 --decode 8 --no-distance "$work" "$model" >"$work/table.md"
grep -F 'ik_llama.cpp: not measured' "$work/table.md"
grep -F '| llama-Q4_0.gguf | 1 | prefill 64 |' "$work/table.md"
grep -F '| llama-Q4_0.gguf | 1 | decode 8 |' "$work/table.md"
# A folder that holds anything is no place for results.
cp "$work/bench.json" "$work/before"
if bench/rivals.sh --lockstep "$build/lockstep" --rounds 1 --keep "$work" "$work" "$model" 2>"$work/refusal"; then exit 1; fi
grep -F 'is not empty' "$work/refusal"
cmp "$work/bench.json" "$work/before"
if [ -x "$build/bench/kernels_bench" ]; then
  "$build/bench/kernels_bench" --benchmark_min_time=0.001 --benchmark_filter='/(decode|prefill)/(q4|q6k|bf16)$|quantize|rms_norm|silu|attention/.*/1$|greedy'
else
  echo "kernels_bench was not built (libbenchmark-dev is missing)"
fi
if command -v valgrind >/dev/null; then tools/instruction_counts.sh --check "$build/lockstep"; fi

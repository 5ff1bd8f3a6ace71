#!/bin/bash
# Count the instructions of one decode step and of a prefill, with callgrind: a measure that no other load
# and no clock touches, so that a change can be compared on any machine.
#
# usage: instruction_counts.sh [--check] [PROGRAM]     (PROGRAM: build/release/lockstep)
#   without --check  writes bench/instructions.txt
#   --check          counts anew and shows the difference to that file; no difference is a failure, since the
#                    compiler and its libraries count as well
#
# One thread; AVX2 kernels, the best that valgrind runs. Of two runs that differ in nothing but the number
# of tokens the difference is taken, so that loading and printing are left out.
set -euo pipefail
cd "$(dirname "$0")/.."
file=bench/instructions.txt
check=no
if [ "${1:-}" = --check ]; then check=yes; shift; fi
program=${1:-build/release/lockstep}
[ -x "$program" ] || { echo "instruction_counts.sh: $program is not there (cmake --build --preset release)" >&2; exit 2; }
command -v valgrind >/dev/null || { echo "instruction_counts.sh: valgrind is missing (tools/setup_debian.sh ci)" >&2; exit 2; }
models=(llama-Q4_0 llama-Q4_K_M gemma3-Q4_0)

# count MODEL PROMPT STEPS: instructions of a bench of both, twice: the round that warms up and the one that counts.
count() {
  local log
  log=$(LOCKSTEP_ISA=avx2 LOCKSTEP_CACHE=off valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" bench \
    "tests/golden/gguf/$1.gguf" --threads 1 --prompt "$2" --depth 0 --decode "$3" --rounds 1 --no-peaks --json 2>&1 >/dev/null) ||
    { echo "$log" >&2; return 1; }
  sed -n 's/^==[0-9]*== Collected : \([0-9]*\)$/\1/p' <<<"$log"
}

new=$(mktemp)
trap 'rm -f "$new"' EXIT
{
  echo "# Instructions by callgrind: one thread, AVX2 kernels, default precision (tools/instruction_counts.sh)."
  echo "# $(c++ --version | head -1)"
  for model in "${models[@]}"; do
    base=$(count "$model" 32 8)
    steps=$(count "$model" 32 40)
    prompt=$(count "$model" 96 8)
    [ -n "$base" ] && [ -n "$steps" ] && [ -n "$prompt" ]
    echo "$model decode_step $(((steps - base) / 64))"
    echo "$model prefill_64 $(((prompt - base) / 2))"
  done
} >"$new"

if [ "$check" = no ]; then
  cp "$new" "$file"
  cat "$file"
  exit
fi
[ -f "$file" ] || { echo "instruction_counts.sh: there is no $file to compare with" >&2; exit 2; }
awk 'FNR == 1 { ++part }
  /^#/ { next }
  part == 1 { old[$1 " " $2] = $3; next }
  { was = old[$1 " " $2]
    if (was == "") printf "%-14s %-12s %12d (new)\n", $1, $2, $3
    else printf "%-14s %-12s %12d -> %12d  %+.2f %%\n", $1, $2, was, $3, 100 * ($3 - was) / was }' "$file" "$new"

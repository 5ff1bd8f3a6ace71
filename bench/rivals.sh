#!/bin/bash
# Lockstep against llama.cpp and ik_llama.cpp, alternately, on the same files and threads, in one run; and
# one Markdown table of medians, spreads, ratios and distances from the fp32 reference.
#
# usage: rivals.sh [OPTION...] PEERS MODEL.gguf...
#   PEERS    a folder with llama.cpp/bin/llama-bench and ik_llama.cpp/bin/llama-bench; a rival that is
#            not there is left out, and the table says so
#   --lockstep PROGRAM      (build/release/lockstep)
#   --out FILE              the table (stdout)
#   --rounds N              alternating rounds; medians are of these (5)
#   --threads "N..."        ("1 2")
#   --prompts N,...         prefill (512,2048)
#   --decode N              tokens from an empty context (64)
#   --ik-flags "FLAGS"      for ik_llama.cpp's llama-bench, for example "-rtr 1"; default: as it comes
#   --llama-flags "FLAGS"   likewise
#   --genai "COMMAND"       also runs COMMAND once per thread count, with OMP_NUM_THREADS set, after the
#   --transformers "COMMAND"  rounds: it prints JSON lines with prompt, prefill_tps and decode_tps
#   --no-distance           leaves out the distances (the reference takes about a minute per model)
#   --keep FOLDER           keeps every raw result there; a folder that is new or empty
#
# The goals: prefill at 512 and at 2048 >= 1.5 x ik_llama.cpp; decode >= 1.2 x on SmolLM2-135M Q4_1 and
# >= 1.1 x on Gemma-3-270M Q4_K_M. Run it on a machine that does nothing else, under the ordinary
# scheduler: Linux stops what runs under a real-time one for 50 ms of each second.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; }

lockstep=$here/../build/release/lockstep out='' rounds=5 threads='1 2' prompts=512,2048 decode=64
ik_flags='' llama_flags='' genai='' transformers='' distance=yes keep=''
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --no-distance) distance=no; shift; continue ;;
    --*) [ $# -ge 2 ] || { echo "rivals.sh: $1 needs a value" >&2; exit 2; } ;;&
    --lockstep) lockstep=$2 ;;
    --out) out=$2 ;;
    --rounds) rounds=$2 ;;
    --threads) threads=$2 ;;
    --prompts) prompts=$2 ;;
    --decode) decode=$2 ;;
    --ik-flags) ik_flags=$2 ;;
    --llama-flags) llama_flags=$2 ;;
    --genai) genai=$2 ;;
    --transformers) transformers=$2 ;;
    --keep) keep=$2 ;;
    --*) echo "rivals.sh: unknown option $1 (--help shows them)" >&2; exit 2 ;;
    *) break ;;
  esac
  shift 2
done
[ $# -ge 2 ] || { usage >&2; exit 2; }
peers=$1
shift
[ -x "$lockstep" ] || { echo "rivals.sh: $lockstep is not there (build it, or --lockstep PROGRAM)" >&2; exit 2; }
for model in "$@"; do
  [ -f "$model" ] || { echo "rivals.sh: no such file: $model" >&2; exit 2; }
done

if [ -n "$keep" ]; then
  mkdir -p "$keep"
  # Results are told apart by their names alone, and written over what has the same name.
  [ -z "$(ls -A "$keep")" ] || { echo "rivals.sh: $keep is not empty; --keep takes a new or empty folder" >&2; exit 2; }
  work=$keep
else
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
fi

# measure RIVAL MODEL THREADS ROUND: one raw result in $work.
measure() {
  local name=$1 model=$2 t=$3 round=$4 flags
  local to=$work/$name.$(basename "$model").t$t.r$round.json
  case "$name" in
    lockstep)
      "$lockstep" bench "$model" --threads "$t" --prompt "$prompts" --depth 0 --decode "$decode" --rounds 1 \
        --no-peaks --json >"$to" ;;
    *)
      flags=$llama_flags
      [ "$name" = ik_llama.cpp ] && flags=$ik_flags
      # shellcheck disable=SC2086 # flags are words
      "$peers/$name/bin/llama-bench" -m "$model" -t "$t" -p "$prompts" -n "$decode" -r 1 -o json $flags \
        >"$to" 2>"$work/stderr" || { tail -5 "$work/stderr" >&2; echo "rivals.sh: $name failed on $model" >&2; return 1; } ;;
  esac
}

present=(lockstep)
for name in llama.cpp ik_llama.cpp; do
  [ -x "$peers/$name/bin/llama-bench" ] && present+=("$name")
done
for model in "$@"; do
  for t in $threads; do
    for round in $(seq "$rounds"); do
      for name in "${present[@]}"; do
        echo "$(basename "$model"), $t threads, round $round of $rounds: $name" >&2
        measure "$name" "$model" "$t" "$round"
      done
    done
  done
done
for name in genai transformers; do
  command=${!name}
  [ -n "$command" ] || continue
  for t in $threads; do
    echo "$name, $t threads" >&2
    OMP_NUM_THREADS=$t bash -c "$command" >"$work/$name.t$t.jsonl" || echo "rivals.sh: $name failed" >&2
  done
done

# Distances on a fixed text: the licence, two windows of 256.
if [ "$distance" = yes ]; then
  head -c 4000 "$here/../LICENSE" >"$work/text"
  for model in "$@"; do
    base=$(basename "$model")
    echo "$base: distance from the reference" >&2
    "$lockstep" perplexity "$model" -f "$work/text" --ctx 256 --kl-against "$model" --json >"$work/distance.$base.json"
    if [ -x "$peers/llama.cpp/bin/llama-perplexity" ]; then
      if "$peers/llama.cpp/bin/llama-perplexity" -m "$model" -f "$work/text" -c 256 --kl-divergence-base "$work/recorded" \
        >"$work/llama-perplexity.$base.txt" 2>&1; then
        "$lockstep" perplexity "$model" -f "$work/text" --ctx 256 --reference --kl-against "$work/recorded" --json \
          >"$work/distance-of-llama.$base.json"
      else
        echo "rivals.sh: llama-perplexity failed on $model" >&2
      fi
      rm -f "$work/recorded"
    fi
  done
fi

"$lockstep" bench "$1" --prompt 1 --depth 0 --decode 1 --rounds 1 --json >"$work/machine.json"
python3 "$here/rivals_table.py" "$work" "$@" >"$work/table.md"
if [ -n "$out" ]; then
  cp "$work/table.md" "$out"
else
  cat "$work/table.md"
fi

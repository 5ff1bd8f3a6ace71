#!/bin/bash
# What `make demo` shows, on a model that fetch_models.sh got.
# usage: demo.sh LOCKSTEP MODEL.gguf
set -euo pipefail
lockstep=${1:?usage: demo.sh LOCKSTEP MODEL.gguf}
model=${2:?usage: demo.sh LOCKSTEP MODEL.gguf}
show() {
  printf '\n$'
  local word
  for word in "$@"; do
    case "$word" in *[!A-Za-z0-9_./=-]*) printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac
  done
  printf '\n'
  "$@"
}
show "$lockstep" inspect "$model"
show "$lockstep" run "$model" -p 'Why is the sky blue?' -n 48
# The recording holds what transformers computed for five prompts on the same weights.
show "$lockstep" verify tests/golden/real/smollm2.safetensors "$model"

#!/bin/bash
# The session of docs/tutorials/exported_gemma.md: what is wrong with an export, why, and its repair.
#
# usage: exported_gemma.sh CHECKPOINT EXPORT NEW
#   CHECKPOINT  the Hugging Face folder (or GGUF file) that was exported
#   EXPORT      the folder with model.onnx that a builder wrote of it
#   NEW         the mended folder; it must not exist
# LOCKSTEP names the program (lockstep); ONNX Runtime must be found (LOCKSTEP_ORT or pip's).
# Exit code 0: the export differed, the cause was named, and the mended folder matches.
set -uo pipefail
[ $# -eq 3 ] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
lockstep=${LOCKSTEP:-lockstep} checkpoint=$1 export=$2 new=$3

# run EXPECTED COMMAND...: shows the command, runs it, and stops where it ends otherwise.
run() {
  local expected=$1
  shift
  printf '\n$ %s\n' "${*/#$lockstep/lockstep}"
  "$@"
  local code=$?
  [ $code -eq "$expected" ] || { echo "exit code $code where $expected was expected" >&2; exit 1; }
}

run 1 "$lockstep" audit "$checkpoint" "$export"
run 1 "$lockstep" verify "$checkpoint" "$export" --longest 0 --diagnose 0
run 0 "$lockstep" diagnose "$checkpoint" "$export" --longest 0
run 0 "$lockstep" repair "$export" --reference "$checkpoint" --out "$new" --no-verify
run 0 "$lockstep" verify "$checkpoint" "$new" --longest 0

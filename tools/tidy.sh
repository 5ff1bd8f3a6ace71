#!/bin/bash
# clang-tidy (.clang-tidy says which checks) over every source of src/ and fuzz/ that BUILD_DIR
# compiles. Tests are left out: GoogleTest's macros expand to what the checks warn about.
# usage: tidy.sh BUILD_DIR [JOBS]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: tidy.sh BUILD_DIR [JOBS]}
jobs=${2:-$(nproc)}
[ -f "$build/compile_commands.json" ] || { echo "tidy.sh: $build has no compile_commands.json; configure it first" >&2; exit 1; }
python3 - "$build/compile_commands.json" <<'PY' | tr '\n' '\0' | xargs -0 -n 2 -P "$jobs" \
  clang-tidy-14 -p "$build" --quiet 2>/dev/null
import json, os, sys
files = {os.path.normpath(os.path.join(c["directory"], c["file"])) for c in json.load(open(sys.argv[1]))}
root = os.getcwd()
for path in sorted(files):
    inside = os.path.relpath(path, root)
    if inside.startswith(("src/", "fuzz/")) and not inside.endswith("_test.cc") and os.path.exists(path):
        print(inside)
PY

#!/bin/bash
# Run every fuzz target in DIR for SECONDS seconds, JOBS of them at a time. A finding is a failure; the
# input that caused it stays in build/fuzz-findings/.
# usage: fuzz.sh DIR [SECONDS] [JOBS]
#
# Seeds come from tests/golden, so that fuzzing starts from well-formed files. The corpus grows in
# build/fuzz-corpus/ from run to run.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=${1:?usage: fuzz.sh DIR [SECONDS] [JOBS]}
seconds=${2:-60}
jobs=${3:-$(nproc)}
golden=tests/golden

# seeds TARGET MAX_BYTES FILE...: what of the files is small enough becomes the target's seeds.
seeds() {
  local folder=build/fuzz-corpus/$1/seeds max=$2 file
  shift 2
  mkdir -p "$folder"
  for file in "$@"; do
    if [ -f "$file" ] && [ "$(stat -c %s "$file")" -le "$max" ]; then
      cp "$file" "$folder/$(sha256sum <"$file" | cut -c1-16)"
    fi
  done
}
shopt -s nullglob globstar
seeds safetensors 200000 $golden/models/**/*.safetensors
seeds gguf 400000 $golden/gguf/**/*.gguf
seeds onnx 65536 $golden/onnx/**/*.onnx
seeds config_json 65536 $golden/models/*/config.json
seeds tokenizer_json 65536 $golden/tokenizers/**/*.json
# The audit's bytes are changes of an export: any will do, if they are long enough for several.
mkdir -p build/fuzz-corpus/audit/seeds
python3 - build/fuzz-corpus/audit/seeds <<'PY'
import pathlib, random, sys
for seed in range(60):
    data = random.Random(seed).randbytes(40 + 4 * seed)
    (pathlib.Path(sys.argv[1]) / f"{seed:02}").write_bytes(data)
PY
# Templates lie inside JSON: one seed each.
mkdir -p build/fuzz-corpus/jinja/seeds
python3 - $golden/chat build/fuzz-corpus/jinja/seeds <<'PY'
import hashlib, json, pathlib, sys
folder, out = map(pathlib.Path, sys.argv[1:3])
templates = [t["text"] for t in json.loads((folder / "templates.json").read_text()).values()]
templates += [json.loads(line)["template"] for line in (folder / "units.jsonl").read_text().splitlines()]
for template in templates:
    if isinstance(template, str):
        data = template.encode()
        (out / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
PY

run() {
  local program=$1 seconds=$2 name findings
  name=$(basename "$program" _fuzz)
  findings=build/fuzz-findings/$name
  mkdir -p "build/fuzz-corpus/$name/new" "build/fuzz-corpus/$name/seeds" "$findings"
  local log=build/fuzz-findings/$name.log
  if "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=1024 \
    -artifact_prefix="$findings/" -print_final_stats=1 \
    "build/fuzz-corpus/$name/new" "build/fuzz-corpus/$name/seeds" </dev/null >"$log" 2>&1; then
    echo "$name: no finding in $seconds s, $(grep -oP 'number_of_executed_units: \K\d+' "$log") runs"
  else
    echo "$name: FINDING (input in $findings/)"
    grep -v '^#' "$log" | tail -40
    return 1
  fi
}
export -f run

targets=("$dir"/*_fuzz)
[ ${#targets[@]} -gt 0 ] || { echo "fuzz.sh: no *_fuzz program in $dir" >&2; exit 1; }
printf '%s\0' "${targets[@]}" | xargs -0 -P "$jobs" -I{} bash -c "set -euo pipefail; run {} $seconds"

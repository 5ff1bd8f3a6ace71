#!/bin/bash
# Fetch ONNX Runtime's library from its Python package: only pip and unzip are needed, and no Python
# code of it is run.
#
# usage: fetch_ort.sh DIR
#   DIR/libonnxruntime.so.VERSION; LOCKSTEP_ORT=DIR makes lockstep use it.
#
# A library that is there is kept. It appears under its name only when it is complete.
set -euo pipefail

version=1.32.0
[ $# -eq 1 ] || { echo "usage: fetch_ort.sh DIR" >&2; exit 2; }
dir=$1

fail() {
  echo "fetch_ort.sh: $*" >&2
  exit 1
}
for tool in python3 unzip; do
  command -v $tool >/dev/null || fail "$tool is missing (run tools/setup_debian.sh)"
done
mkdir -p "$dir" || fail "cannot make the folder $dir"
name=libonnxruntime.so.$version
if [ -s "$dir/$name" ]; then
  echo "$dir/$name is there already"
  exit
fi
work=$(mktemp -d "$dir/.fetch.XXXXXX") || fail "cannot write to $dir"
trap 'rm -rf "$work"' EXIT
echo "Fetching ONNX Runtime $version into $dir"
# The newest release that this Python and machine have a package of, when the pinned one has none.
for package in "onnxruntime==$version" onnxruntime; do
  if python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: \
    -d "$work" "$package" </dev/null; then
    break
  fi
done
wheels=("$work"/*.whl)
[ -f "${wheels[0]}" ] || fail "pip could not download onnxruntime (no network?)"
unzip -q -j "${wheels[0]}" 'onnxruntime/capi/libonnxruntime.so.*' -d "$work/lib" ||
  fail "${wheels[0]##*/} does not contain libonnxruntime.so"
mv "$work"/lib/libonnxruntime.so.* "$dir/"
echo "LOCKSTEP_ORT=$dir makes lockstep use it"

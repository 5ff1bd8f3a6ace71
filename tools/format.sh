#!/bin/bash
# Format the C++ sources with clang-format 14; with --check, only say which are not formatted.
# usage: format.sh [--check]
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -d '' files < <(find src fuzz tests bench -name golden -prune -o \( -name '*.cc' -o -name '*.h' \) -print0)
if [ "${1:-}" = --check ]; then
  clang-format-14 --dry-run --Werror "${files[@]}"
else
  clang-format-14 -i "${files[@]}"
fi

#!/bin/bash
# usage: check_kernel_symbols.sh NM ARCHIVE
# Fails when an object of the kernels holds weak code (an inline function or template that is not in
# an unnamed namespace): compiled with AVX-512 flags there, the linker could take it for the same
# function of any other object, and the program would end on processors that lack those instructions.
set -euo pipefail
found=$("$1" -A "$2" | grep -E ' [Wu] ' || true)
[ -n "$("$1" "$2" | grep -E ' [RrDd] .*kKernelsScalar')" ] || {
  echo "check_kernel_symbols.sh: $2 does not hold the kernels" >&2
  exit 1
}
# kernel_table.cc is compiled for any processor.
found=$(grep -v 'kernel_table' <<<"$found" || true)
[ -z "$found" ] && exit 0
echo "Weak symbols in objects with flags of their own; move the code into the kernels' namespace:" >&2
c++filt <<<"$found" >&2
exit 1

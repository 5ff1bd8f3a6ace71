#!/bin/bash
# usage: check_aarch64.sh FOLDER
# Cross-compiles the kernels for AArch64 with tests/kernels_self_check.cc, and runs it under qemu-user:
# the NEON and the plain table against their twins. Needs g++-aarch64-linux-gnu and qemu-user-static.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:?usage: check_aarch64.sh FOLDER}
mkdir -p "$folder"
compile() { # OBJECT SOURCE FLAG...
  aarch64-linux-gnu-g++ -std=c++20 -ffp-contract=off -Wall -Wextra -Wno-psabi \
    -Wno-missing-field-initializers -Wno-maybe-uninitialized -DNDEBUG -Isrc -c "$2" \
    -o "$folder/$1.o" "${@:3}"
}
compile neon src/engine/kernels/kernels_neon.cc -O2 -march=armv8.2-a+dotprod+fp16 &
compile scalar src/engine/kernels/kernels_scalar.cc -O2 &
wait -n
wait -n
compile table src/engine/kernels/kernel_table.cc -O2
compile dtype src/base/dtype.cc -O2 -DFMT_HEADER_ONLY -idirafter /usr/include
compile error src/base/error.cc -O2 -DFMT_HEADER_ONLY -idirafter /usr/include
compile quoted src/base/quoted.cc -O2 -DFMT_HEADER_ONLY -idirafter /usr/include
compile utf8 src/base/utf8.cc -O2
# fmt has headers for any processor, but no library for this one.
compile check tests/kernels_self_check.cc -O2 -DFMT_HEADER_ONLY -idirafter /usr/include
aarch64-linux-gnu-g++ -static "$folder"/{check,table,neon,scalar,dtype,error,quoted,utf8}.o -o "$folder/kernels_self_check"
timeout 280 qemu-aarch64-static -cpu max "$folder/kernels_self_check"

#!/bin/bash
# Install the Debian 12 packages that Lockstep needs. This is the one list of them.
#
# usage: setup_debian.sh [GROUP...]   GROUP: build (default) or ci (adds what the checks need)
#
# When nothing is missing it touches neither the network nor the disk. As root it installs what is
# missing; otherwise it prints the one line to run and stops.
set -euo pipefail

build=(g++ cmake ninja-build make pkg-config python3 python3-pip unzip ca-certificates
  libfmt-dev libcli11-dev nlohmann-json3-dev libsimdjson-dev libexpected-dev
  libutf8proc-dev libxxhash-dev libcurl4-openssl-dev libgtest-dev)
ci=("${build[@]}" ccache clang-14 clang-tidy-14 clang-format-14 libclang-rt-14-dev llvm-14
  libbenchmark-dev valgrind g++-aarch64-linux-gnu qemu-user-static)

wanted=()
for group in "${@:-build}"; do
  case "$group" in
    build) wanted+=("${build[@]}") ;;
    ci) wanted+=("${ci[@]}") ;;
    *) echo "setup_debian.sh: unknown group \"$group\" (known: build, ci)" >&2; exit 2 ;;
  esac
done

command -v dpkg-query >/dev/null || {
  echo "setup_debian.sh: this is not a Debian system; install the equivalents of: ${wanted[*]}" >&2
  exit 1
}
missing=()
for package in "${wanted[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ]; then
  echo "Packages are missing. Run this line, then the same command again:" >&2
  echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
  exit 1
fi
echo "Installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update </dev/null
apt-get -qq install -y --no-install-recommends "${missing[@]}" </dev/null >/dev/null

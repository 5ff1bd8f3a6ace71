#!/usr/bin/env python3
"""clang-tidy (.clang-tidy says which checks) over every source of src/ and fuzz/ that BUILD_DIR compiles.

usage: tidy.py BUILD_DIR [JOBS]

Tests are left out: GoogleTest's macros expand to what the checks warn about. A file that was found clean is not
looked at again until it, a header it includes, .clang-tidy or clang-tidy itself changes: the key of
its preprocessed text lies in ~/.cache/lockstep/tidy, as ccache does it for the compiler.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parent.parent
os.chdir(root)
if not 2 <= len(sys.argv) <= 3:
    sys.exit(__doc__.split("\n\n")[1])
build = pathlib.Path(sys.argv[1])
jobs = int(sys.argv[2]) if len(sys.argv) == 3 else len(os.sched_getaffinity(0))
database = build / "compile_commands.json"
if not database.exists():
    sys.exit(f"tidy.py: {build} has no compile_commands.json; configure it first (cmake --preset release)")
cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "lockstep/tidy"
cache.mkdir(parents=True, exist_ok=True)
settings = (root / ".clang-tidy").read_bytes() + subprocess.run(
    ["clang-tidy-14", "--version"], capture_output=True, check=True).stdout


def key_of(entry):
    """Absent when the file cannot be preprocessed: then clang-tidy shall say why."""
    words = shlex.split(entry["command"])
    flags = [w for w in words[1:] if w.startswith(("-I", "-D", "-std", "-i"))]
    # -CC keeps comments, and with them NOLINT; -P leaves out where each line came from.
    found = subprocess.run(["clang++-14", "-E", "-P", "-CC", "-w", *flags, entry["file"]],
                           capture_output=True, cwd=entry["directory"])
    if found.returncode != 0:
        return None
    text = found.stdout.replace(str(root).encode(), b"")
    return hashlib.sha256(settings + " ".join(flags).replace(str(root), "").encode() + text).hexdigest()


def check(entry):
    key = key_of(entry)
    if key and (cache / key).exists():
        return True, "", True
    found = subprocess.run(["clang-tidy-14", "-p", str(build), "--quiet", entry["file"]],
                           capture_output=True, text=True)
    if found.returncode == 0 and key:
        (cache / key).touch()
    return found.returncode == 0, found.stdout + (found.stderr if not found.stdout else ""), False


entries = {}
for entry in json.loads(database.read_text()):
    path = pathlib.Path(entry["directory"], entry["file"]).resolve()
    inside = os.path.relpath(path, root)
    if inside.startswith(("src/", "fuzz/")) and not inside.endswith("_test.cc") and path.exists():
        entries[inside] = entry
bad = known = 0
with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
    for ok, text, cached in pool.map(check, [entries[k] for k in sorted(entries)]):
        known += cached
        if not ok:
            bad += 1
            print(text.strip(), flush=True)
print(f"clang-tidy: {len(entries)} files, {known} of them known to be clean, {bad} with findings")
sys.exit(1 if bad else 0)

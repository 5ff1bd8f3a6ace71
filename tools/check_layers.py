#!/usr/bin/env python3
"""Fail when a file of src/ includes a folder that its own folder may not see.

usage: check_layers.py SRC LAYERS.txt     (LAYERS.txt is written by src/CMakeLists.txt: one "folder: dep dep" a line)
"""
import pathlib
import re
import sys

src, layers_file = map(pathlib.Path, sys.argv[1:3])
direct = {}
for line in layers_file.read_text().splitlines():
    folder, deps = line.split(":")
    direct[folder] = set(re.split(r"[; ]+", deps.strip())) - {""}


def reachable(folder):
    seen, todo = {folder}, [folder]
    while todo:
        for dep in direct[todo.pop()] - seen:
            seen.add(dep)
            todo.append(dep)
    return seen


faults = []
for folder in direct:
    allowed = reachable(folder)
    for path in sorted((src / folder).rglob("*")):
        if path.suffix not in (".h", ".cc", ".inc"):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+"([^"/]+)/', line)
            if match and match[1] in direct and match[1] not in allowed:
                faults.append(f"{path.relative_to(src.parent)}:{number}: {folder}/ may not include {match[1]}/ "
                              f"(it may see: {', '.join(sorted(allowed - {folder}))})")
for fault in faults:
    print(fault, file=sys.stderr)
sys.exit(1 if faults else 0)

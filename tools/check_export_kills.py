#!/usr/bin/env python3
"""What goes wrong while a model is exported: kills, full disks, folders that cannot be written or are there already.

usage: check_export_kills.py LOCKSTEP MODEL [N]
  MODEL    a checkpoint (some hundred megabytes let kills fall into the writing of weights)

N times (default: 50) an export to genai, gguf or safetensors is killed at a random moment, every third time twice.
There is then no output, or the whole one, and the same command gives the bytes of an export that nobody killed and
leaves nothing beside it. Then full disks (a limit on a file's size, a small tmpfs), a folder that cannot be written,
outputs that exist: one sentence, exit code 2 or 3, nothing left. The model's bytes are the same at the end.
"""
import contextlib
import functools
import hashlib
import os
import pathlib
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time

TARGETS = {
    "genai": ["--to", "genai"],
    "gguf": ["--to", "gguf"],
    "safetensors": ["--to", "safetensors", "--precision", "f32", "--shard-size", "40MB"],
}


def bytes_of(path):
    """Name and hash of every file in a folder, or of the file itself."""
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return {str(p.relative_to(path)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def remove(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextlib.contextmanager
def file_system(folder, options):
    """A tmpfs there for a while, if this user may mount one: whether."""
    folder.mkdir(mode=0o555 if options == "ro" else 0o777)
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    mounted = subprocess.run(command, capture_output=True).returncode == 0
    yield mounted
    if mounted:
        subprocess.run(["umount", str(folder)], check=True)
    folder.rmdir()


class Check:
    def __init__(self, lockstep, model, room):
        self.lockstep, self.model, self.room, self.failures = lockstep, model, room, 0

    def expect(self, holds, what):
        if not holds:
            self.failures += 1
            print(f"FAILED: {what}", flush=True)

    def start(self, target, out, *more, **keywords):
        command = map(str, [self.lockstep, "export", self.model, out, *TARGETS[target], "--no-verify", *more])
        keywords |= {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(list(command), **keywords)

    def run(self, target, out, *more, **keywords):
        process = self.start(target, out, *more, **keywords)
        lines = process.communicate()[1].splitlines()
        self.said = [line for line in lines if line.startswith("note: ")]
        return process.returncode, "\n".join(line for line in lines if line not in self.said)

    def refused(self, what, target, out, *more, **keywords):
        before = os.listdir(out.parent)
        code, text = self.run(target, out, *more, **keywords)
        sentence = code in (2, 3) and text.startswith("lockstep: ") and "\n" not in text
        self.expect(sentence and os.listdir(out.parent) == before, f"{what}: {code}, {os.listdir(out.parent)}")
        print(f"{what}: {text}", flush=True)

    def kills(self, count, chance):
        whole, seconds = {}, {}
        for target in TARGETS:
            begin = time.monotonic()
            self.expect(self.run(target, self.room / target) == (0, ""), target)
            seconds[target] = time.monotonic() - begin
            whole[target] = bytes_of(self.room / target)
            remove(self.room / target)
        after = resumed = 0
        for i in range(count):
            target = list(TARGETS)[i % len(TARGETS)]
            out = self.room / target
            for _ in range(2 if i % 3 == 2 else 1):
                process = self.start(target, out)
                time.sleep(chance.uniform(0, seconds[target]))
                process.kill()
                process.communicate()
                if out.exists():
                    break
            if out.exists():
                after += 1
                self.expect(bytes_of(out) == whole[target], f"kill {i}, {target}: only a part is there")
            else:
                code, text = self.run(target, out)
                resumed += any("going on from" in line for line in self.said)
                self.expect(code == 0 and bytes_of(out) == whole[target], f"kill {i}, {target}: next: {code} {text}")
            self.expect(os.listdir(self.room) == [target], f"kill {i}, {target}: beside it {os.listdir(self.room)}")
            remove(out)
        print(f"{count} kills: {after} came after the end, {resumed} exports went on from what was left", flush=True)

    def full_disks(self):
        limit = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        for target in TARGETS:
            self.refused(f"a file's size is limited, {target}", target, self.room / "out", preexec_fn=limit)
        with file_system(self.room / "small", "size=2m") as mounted:
            for target in TARGETS if mounted else ():
                self.refused(f"a disk of 2 MB, {target}", target, self.room / "small" / "out")

    def folders(self):
        out = self.room / "there"
        out.mkdir()
        (out / "letter.txt").write_text("dear")
        for target in TARGETS:
            self.refused(f"a folder that exists, {target}", target, out)
            self.refused(f"a folder of someone's, --force, {target}", target, out, "--force")
        self.expect(os.listdir(out) == ["letter.txt"], "the folder that existed was changed")
        remove(out)
        # Nothing is locked for root, but a file system that was mounted so.
        with file_system(self.room / "locked", "ro") as mounted:
            for target in TARGETS if mounted or os.geteuid() != 0 else ():
                self.refused(f"a folder that cannot be written, {target}", target, self.room / "locked" / "out")


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    lockstep, model = (pathlib.Path(a).absolute() for a in sys.argv[1:3])
    before = bytes_of(model)
    with tempfile.TemporaryDirectory() as folder:
        check = Check(lockstep, model, pathlib.Path(folder))
        check.folders()
        check.full_disks()
        check.kills(int(sys.argv[3]) if len(sys.argv) == 4 else 50, random.Random(1))
    check.expect(bytes_of(model) == before, "the model was changed")
    sys.exit(f"{check.failures} failures" if check.failures else 0)


if __name__ == "__main__":
    main()

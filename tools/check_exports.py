#!/usr/bin/env python3
"""Exports that real builders wrote: the verdict, the cause and the repair of each, by the program.

usage: check_exports.py LOCKSTEP EXPORTS MODELS
  EXPORTS  BUILDER/CASE[@PRECISION]/ with model.onnx
  MODELS   CASE/, the checkpoints, each with golden.safetensors: what transformers computes

A folder that the table does not have fails. ONNX Runtime must be found (LOCKSTEP_ORT).
"""
import json
import pathlib
import subprocess
import sys
import tempfile

MATCH, WEIGHTS = "match", "quantized activations"
# What the logits may differ by once the reference has the folder's codes and rounds as it does.
RESIDUAL = 1e-4
# folder -> a verdict, or what its causes change: the ends of the paths, each once.
EXPECTED = {
    "genai-0.18/gemma2": {"embedding.scale.rounding"},
    "genai-0.18/gemma3-rope-scaled": {"embedding.scale.rounding", "weight_rounding", "rope.scaling"},
    "genai-0.18/granite": MATCH,
    "genai-0.18/lfm2-moe": MATCH,
    "genai-0.18/lfm2-moe@int4": WEIGHTS,
    "genai-0.18/llama": MATCH,
    "genai-0.18/llama@int4": WEIGHTS,
    "genai-0.18/mistral-sliding": {"sliding_window"},
    "genai-0.18/nemotron": {"weight_rounding", "eps"},  # the builder writes 1e-6 for 1e-5
    "genai-0.18/qwen2": MATCH,
    "genai-0.18/qwen3": MATCH,
    "genai-0.18/qwen3@int8": WEIGHTS,
    "mobius-0.1/gemma2": {"embedding.scale.rounding", "sliding_window"},
    "mobius-0.1/gpt2": MATCH,
    "mobius-0.1/llama-bias-headdim": {"bias"},
    "mobius-0.1/mixtral": MATCH,
    "mobius-0.1/phi3": MATCH,
    "mobius-0.1/qwen2-sliding": {"sliding_window"},
    "mobius-0.1/smollm3": MATCH,
}


def run(*args):
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return json.loads(done.stdout)


def end_of(path, wanted):
    """The expected end that a changed fact or weight has, or the path itself."""
    for end in wanted:
        if path.endswith(end) or (end == "bias" and "_bias" in path):
            return end
    return path


def causes_of(diagnosis, wanted):
    found = set()
    for cause in diagnosis["causes"]:
        changes = [change["path"] for change in cause["changes"]]
        found |= {end_of(path, wanted) for path in changes or [cause["edit"]]}
    return found


def check(lockstep, folder, checkpoint, expected):
    """A sentence of what is wrong, or nothing; and a few words of what was seen."""
    seen = run(lockstep, "verify", checkpoint, folder, "--json")
    # Whatever the graph computes, how its cache is filled must not show.
    ways = [p for p in seen["passages"] if p["verdict"] != "not comparable"]
    differing = [f"{p['passage']}: {p['sentence']}" for p in ways if p["verdict"] == "differs"]
    if not ways or differing:
        return f"by other ways than whole: {differing or 'none was asked'}", ""
    if isinstance(expected, str):
        wrong = "" if seen["verdict"] == expected else f"the verdict is \"{seen['verdict']}\""
        if expected != WEIGHTS or wrong:
            return wrong, seen["verdict"]
        rounded = seen["own_codes"]["rounded"]
        if not rounded["max_abs"] < RESIDUAL:
            wrong = f"{rounded['max_abs']:.1e} is left on its own codes, expected below {RESIDUAL}"
        elif "diagnosis" in seen:
            wrong = "a cause was looked for"
        return wrong, (f"{seen['verdict']}: {rounded['max_abs']:.1e} is left; "
                       f"{rounded['ties']} ties of {rounded['activations']} activations")
    if seen["verdict"] != "differs":
        return f"the verdict is \"{seen['verdict']}\"", ""
    diagnosis = seen["diagnosis"]
    causes = causes_of(diagnosis, expected)
    if diagnosis["verdict"] != "explained" or causes != expected:
        return f"the diagnosis is {diagnosis['verdict']}: {sorted(causes)}", ""
    with tempfile.TemporaryDirectory() as scratch:
        mended = pathlib.Path(scratch) / "mended"
        run(lockstep, "repair", folder, "--reference", checkpoint, "--out", mended, "--no-verify", "--json")
        after = run(lockstep, "verify", checkpoint / "golden.safetensors", mended, "--json")
    if after["verdict"] != MATCH:
        return f"after the repair: {after['sentence']}", ""
    return "", f"{', '.join(sorted(causes))}; repaired: {after['sentence']}"


def main(lockstep, exports, models):
    folders = sorted(p.parent.relative_to(exports).as_posix() for p in exports.glob("*/*/model.onnx"))
    failed = 0
    for name in sorted(set(folders) | set(EXPECTED)):
        try:
            if name not in EXPECTED or name not in folders:
                wrong, seen = "in the table or in the folder, not in both", ""
            else:
                case = name.split("/")[1].split("@")[0]
                wrong, seen = check(lockstep, exports / name, models / case, EXPECTED[name])
        except (RuntimeError, KeyError, ValueError) as error:
            wrong, seen = f"{type(error).__name__}: {error}", ""
        failed += bool(wrong)
        print(f"{'FAIL' if wrong else 'ok  '} {name}: {wrong or seen}", flush=True)
    print(f"{len(EXPECTED) - failed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(*map(pathlib.Path, sys.argv[1:])))

#!/usr/bin/env python3
"""Every checkpoint exported by the program: the verdict against its reference and against transformers.

usage: check_own_exports.py LOCKSTEP MODELS [--genai] [--precision NAME]
  MODELS   CASE/, the checkpoints, each with golden.safetensors: what transformers computes
  --precision  of the exports (default: fp32). Codes must give the reference's logits on the same codes to 1e-4; what
           transformers computes is then only compared where a runtime generates
  --genai  also generate in onnxruntime-genai (this interpreter must have it), and compare the tokens

ONNX Runtime must be found (LOCKSTEP_ORT). Prompts past every window and original context are among those verified.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

TOKENS = 10  # generated for each recorded prompt


def run(*args):
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return json.loads(done.stdout), done.returncode


def worst(verification):
    """The largest difference in multiples of its prompt's noise."""
    ratios = [(p["max_abs"] / p["noise"], p["max_abs"]) for p in verification["prompts"] if p.get("noise")]
    ratio, difference = max(ratios, default=(0.0, 0.0))
    return f"{difference:.1e}, {ratio:.1f} x noise"


def generated(folder, golden):
    """Tokens that the runtime gave, of those that transformers gave: "30/30"."""
    import onnxruntime_genai as og  # only where it is asked for

    model = og.Model(str(folder))
    eos = json.loads((folder / "genai_config.json").read_text())["model"]["eos_token_id"]
    ends = set(eos if isinstance(eos, list) else [eos])
    equal = wanted = 0
    for prompt in golden:
        params = og.GeneratorParams(model)
        params.set_search_options(do_sample=False, repetition_penalty=1.0, max_length=len(prompt["ids"]) + TOKENS)
        generator = og.Generator(model, params)
        generator.append_tokens(prompt["ids"])
        expected = prompt["greedy"][:TOKENS]
        expected = expected[: next((i + 1 for i, t in enumerate(expected) if t in ends), len(expected))]
        tokens = []
        while len(tokens) < len(expected) and not generator.is_done():
            generator.generate_next_token()
            tokens.append(int(generator.get_next_tokens()[0]))
        wanted += len(expected)
        equal += next((i for i, (a, b) in enumerate(zip(tokens, expected)) if a != b), len(tokens))
    return equal, wanted


def recorded(lockstep, case):
    """Ids and greedy tokens of each recorded prompt, as the program reads the recording."""
    from safetensors.numpy import load_file

    tensors = load_file(case / "golden.safetensors")
    prompts = json.loads((case / "golden.json").read_text())["prompts"]
    names = sorted(name for name in tensors if name.endswith("ids"))
    return [{"ids": tensors[name].reshape(-1).astype("int32"), "greedy": prompt["greedy"]}
            for name, prompt in zip(names, prompts)]


def coded(exported):
    """What is wrong with an export in codes, or nothing; and what was seen."""
    verification = exported["verification"]
    if verification["verdict"] not in ("quantized weights", "quantized activations"):
        return verification["sentence"], ""
    seen = verification["sentence"].split(": ", 1)[1]
    for note in exported["notes"]:
        if "tokenizer" not in note:
            seen += f"\n       {note}"
    return "", seen


def check(lockstep, case, scratch, genai, precision):
    """A sentence of what is wrong, or nothing; and a few words of what was seen."""
    folder = scratch / case.name
    exported, code = run(lockstep, "export", case, folder, "--to", "genai", "--precision", precision, "--json")
    if precision in ("int4", "int8"):
        return coded(exported)
    if code != 0 or exported["verification"]["verdict"] != "match":
        audit = "; ".join(finding["sentence"] for finding in exported["audit"]["findings"])
        return f"{exported['verification']['sentence']} {audit}", ""
    golden, _ = run(lockstep, "verify", case / "golden.safetensors", folder, "--json")
    if golden["verdict"] != "match":
        return f"against transformers: {golden['sentence']}", ""
    seen = f"reference {worst(exported['verification'])}; transformers {worst(golden)}"
    if genai:
        equal, wanted = generated(folder, recorded(lockstep, case))
        if equal != wanted:
            return f"onnxruntime-genai gives {equal} of {wanted} tokens", ""
        seen += f"; onnxruntime-genai {equal}/{wanted} tokens"
    for note in exported["notes"]:
        if "tokenizer" not in note:
            seen += f"\n       {note}"
    return "", seen


def main(lockstep, models, genai, precision):
    cases = sorted(p.parent for p in models.glob("*/config.json"))
    failed = 0 if cases else 1
    with tempfile.TemporaryDirectory() as scratch:
        for case in cases:
            try:
                wrong, seen = check(lockstep, case, pathlib.Path(scratch), genai, precision)
            except (RuntimeError, KeyError, ValueError) as error:
                wrong, seen = f"{type(error).__name__}: {error}", ""
            failed += bool(wrong)
            print(f"{'FAIL' if wrong else 'ok  '} {case.name}: {wrong or seen}", flush=True)
    print(f"{len(cases) - failed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    words = sys.argv[1:]
    precision = "fp32"
    if "--precision" in words[:-1]:
        at = words.index("--precision")
        precision = words[at + 1]
        del words[at : at + 2]
    genai = "--genai" in words
    words = [word for word in words if word != "--genai"]
    if len(words) != 2:
        sys.exit(__doc__)
    sys.exit(main(pathlib.Path(words[0]), pathlib.Path(words[1]), genai, precision))

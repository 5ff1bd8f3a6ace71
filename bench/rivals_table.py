#!/usr/bin/env python3
"""The table of rivals.sh from the raw results that it left.   usage: rivals_table.py FOLDER MODEL.gguf..."""
import collections
import json
import pathlib
import re
import statistics
import subprocess
import sys

work = pathlib.Path(sys.argv[1])
models = [pathlib.Path(m) for m in sys.argv[2:]]
RIVALS = ["lockstep", "llama.cpp", "ik_llama.cpp"]
# The least ratios to ik_llama.cpp that the project aims at: (what the file's name holds, test, ratio).
GOALS = [("", "prefill 512", 1.5), ("", "prefill 2048", 1.5), ("smollm2", "decode 64", 1.2), ("gemma-3", "decode 64", 1.1)]

# (model, threads, test) -> rival -> tokens per second of every round
results = collections.defaultdict(lambda: collections.defaultdict(list))
versions = {}


def test_name(kind, tokens):
    return f"{kind} {tokens}"


def read_lockstep(text, key):
    run = json.loads(text)
    versions["lockstep"] = f"Lockstep {run['version']}: kernels {run['kernels']}, {run['activations']} activations, {run['kv']} keys and values"
    for p in run["prefills"]:
        results[key + (test_name("prefill", p["tokens"]),)]["lockstep"].append(p["tps"]["median"])
    for d in run["decodes"]:
        results[key + (test_name("decode", run["decode"]),)]["lockstep"].append(d["tps"]["median"])


def read_llama(name, text, key):
    for run in json.loads(text[text.index("["):]):
        commit = run.get("build_commit", "")
        versions[name] = f"{name}: build {run.get('build_number', '?')} ({commit or 'no commit'})"
        kind, tokens = ("prefill", run["n_prompt"]) if run["n_gen"] == 0 else ("decode", run["n_gen"])
        results[key + (test_name(kind, tokens),)][name].append(run["avg_ts"])


for model in models:
    for path in sorted(work.glob("*.json")):
        for name in RIVALS:
            match = re.fullmatch(re.escape(f"{name}.{model.name}") + r"\.t(\d+)\.r(\d+)\.json", path.name)
            if match:
                key = (model.name, int(match[1]))
                read_lockstep(path.read_text(), key) if name == "lockstep" else read_llama(name, path.read_text(), key)

rounds = max(len(v) for test in results.values() for v in test.values())
present = [r for r in RIVALS if any(r in test for test in results.values())]


def rate(x):
    return f"{x:.0f}" if x >= 100 else f"{x:.1f}"


def cell(values):
    if not values:
        return "–"
    spread = f" ({rate(min(values))}–{rate(max(values))})" if len(values) > 1 else ""
    return rate(statistics.median(values)) + spread


def goal(model, test):
    for part, kind, least in GOALS:
        if part in model.lower() and test == kind:
            return least
    return None


def processor():
    try:
        names = re.findall(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
        return names[0] if names else "unknown processor"
    except OSError:
        return "unknown processor"


def compiler():
    try:
        return subprocess.run(["c++", "--version"], capture_output=True, text=True).stdout.splitlines()[0]
    except (OSError, IndexError):
        return "unknown compiler"


machine = json.loads((work / "machine.json").read_text())["machine"]
print("# Lockstep and its rivals\n")
print("Written by `bench/rivals.sh`. Goals: prefill at 512 and at 2048 tokens at least 1.5 times ik_llama.cpp's; decode at least 1.2 times on")
print("SmolLM2-135M Q4_1 and 1.1 times on Gemma-3-270M Q4_K_M; each one's distance from the fp32 reference no larger than llama.cpp's.\n")
print(f"- Machine: {processor()}; at {machine['threads']} threads it reads {machine['read_bytes_per_second'] / 1e9:.1f} GB/s and does "
      f"{machine['int8_ops_per_second'] / 1e12:.2f} Top/s int8 ({machine['int8_loop']}), {machine['fp32_ops_per_second'] / 1e12:.2f} Tflop/s fp32.")
print(f"- Compiler here: {compiler()}")
for name in present:
    print(f"- {versions[name]}")
for name in RIVALS:
    if name not in present:
        print(f"- {name}: not measured (it was not in the folder of rivals)")
print(f"- {rounds} alternating round{'s' if rounds != 1 else ''}; medians of tokens per second (least–most). Decode starts from an empty context.")
if rounds < 3:
    print("- **Fewer than three rounds: a check that everything runs, no measurement.**")
print()
print("| model | threads | test | " + " | ".join(present) + "".join(f" | × {r}" for r in present[1:]) + " | goal |")
print("|---|---|---|" + "---|" * len(present) + "---|" * (len(present) - 1) + "---|")


def order(key):
    kind, tokens = key[2].split()
    return ([m.name for m in models].index(key[0]), key[1], kind == "decode", int(tokens))


for key in sorted(results, key=order):
    test = results[key]
    ours = statistics.median(test["lockstep"]) if test["lockstep"] else None
    ratios = {r: ours / statistics.median(test[r]) if ours and test[r] else None for r in present[1:]}
    least, against_ik = goal(key[0], key[2]), ratios.get("ik_llama.cpp")
    verdict = "–"
    if least is not None and against_ik is not None:
        verdict = f"≥ {least} × ik: " + ("yes" if against_ik >= least else "no")
    print(f"| {key[0]} | {key[1]} | {key[2]} | " + " | ".join(cell(test[r]) for r in present) +
          "".join(f" | {ratios[r]:.2f}" if ratios[r] else " | –" for r in present[1:]) + f" | {verdict} |")

other = []
for name in ("genai", "transformers"):
    for path in sorted(work.glob(f"{name}.t*.jsonl")):
        threads = re.fullmatch(rf"{name}\.t(\d+)\.jsonl", path.name)[1]
        for line in path.read_text().splitlines():
            if line.startswith("{"):
                other.append((threads, json.loads(line)))
if other:
    print("\nRun once each after the rounds, on the same weights in their own formats:\n")
    print("| runtime | model | threads | prompt | prefill | decode after it |\n|---|---|---|---|---|---|")
    for threads, run in other:
        what = run["peer"] + (f" {run['dtype']}" if "dtype" in run else "")
        print(f"| {what} | {run['model']} | {threads} | {run['prompt']} | {rate(run['prefill_tps'])} | {rate(run['decode_tps'])} |")

if any(work.glob("distance.*.json")):
    print("\nDistance from the fp32 reference on the same weights, over the text of the licence in windows of 256 tokens:\n")
    print("| model | | perplexity | KL mean | KL max | same most likely token | max \\|Δ logit\\| |\n|---|---|---|---|---|---|---|")

    def row(model, who, own, d, largest):
        print(f"| {model} | {who} | {own['perplexity']:.4f} | {d['kl']['mean']:.2e} | {d['kl']['max']:.2e} | "
              f"{100 * d['same_top1']['mean']:.1f} % | {largest} |")

    for model in models:
        path, of_llama = work / f"distance.{model.name}.json", work / f"distance-of-llama.{model.name}.json"
        if not path.exists():
            continue
        d = json.loads(path.read_text())
        print(f"| {model.name} | reference, fp32 | {d['against']['perplexity']:.4f} | 0 | 0 | 100 % | 0 |")
        row("", f"Lockstep: {d['arithmetic']}", d, d, f"{d['max_logit_difference']:.3f}")
        if of_llama.exists():
            d = json.loads(of_llama.read_text())
            own = re.search(r"Final estimate: PPL = ([0-9.]+)", (work / f"llama-perplexity.{model.name}.txt").read_text(errors="replace"))
            row("", "llama.cpp", {"perplexity": float(own[1])} if own else d["against"], d, "–")
    print("\nllama.cpp's is read from what its llama-perplexity records: log-probabilities, so that a difference of logits cannot be told, and")
    print("KL(llama.cpp || reference) where Lockstep's is KL(reference || Lockstep); for distances this small the two directions agree.")
    print("ik_llama.cpp's package builds no program that records them.")

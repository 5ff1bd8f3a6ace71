"""What every adapter here shares: answering `lockstep verify ... cmd:...` over stdin and stdout.

docs/formats/probe.md has the protocol, docs/formats/trace.md the file. An adapter gives serve() a class
with vocab_size, name, and run(ids, steps), which returns the logits of the end of the prompt and of each
greedy step as an array [steps or 1, vocab] of float32 or float64, and may have
positions(ids) -> [ids, vocab] and hidden(ids) -> [layers + 1, ids, hidden].

It may also have passages, the other ways by which a prompt can reach it. For "parts", "rewound" and
"interleaved" it then has sequence(capacity) -> (feed(ids) -> logits of the last, cut_back(length)), each with a
cache of its own; for "padded_batch" batch() -> feed(ids, others) -> logits of the last of ids.
"""
import json, os, struct, sys
import numpy as np

DTYPES = {np.dtype(np.float32): "F32", np.dtype(np.float64): "F64", np.dtype(np.int64): "I64"}

def write_safetensors(path, tensors):
    header, data = {}, []
    end = 0
    for name, array in tensors.items():
        array = np.ascontiguousarray(array)
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": DTYPES[array.dtype], "shape": list(array.shape), "data_offsets": [begin, end]}
        data.append(array.tobytes())
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for part in data:
            file.write(part)

def greedy_rows(start, feed, steps):
    """Rows of logits of a greedy run: start() is the end of the prompt, feed(token) each step after."""
    rows = [np.asarray(start())]
    while len(rows) < steps:
        rows.append(np.asarray(feed(int(rows[-1].argmax()))))  # argmax: the lowest id among equals
    return np.stack(rows)

def passage_rows(subject, prompt):
    """The rows of a prompt by another way than whole."""
    way, ids, steps, other = prompt["passage"], prompt["ids"], prompt["steps"], prompt.get("other", [])
    capacity = len(ids) + len(other) + steps
    turn = 0
    def next_of_other():
        nonlocal turn
        turn += 1
        return [other[(turn - 1) % len(other)]]
    if way == "padded_batch":
        feed = subject.batch()
        return greedy_rows(lambda: feed(ids, other), lambda token: feed([token], next_of_other()), steps)
    feed, cut_back = subject.sequence(capacity)
    if way == "interleaved":
        feed_other, _ = subject.sequence(capacity)
        feed_other(other)
        return greedy_rows(lambda: feed(ids), lambda token: (feed_other(next_of_other()), feed([token]))[1], steps)
    def start():
        begin = 0
        for count in prompt.get("parts", [len(ids)]):
            row = feed(ids[begin:begin + count])
            begin += count
        if way == "rewound":
            feed(other)
            cut_back(len(ids))
        return row
    return greedy_rows(start, lambda token: feed([token]), steps)

def answer(subject, question):
    if question.get("facts"):
        return {"ok": True, "vocab_size": subject.vocab_size, "name": subject.name,
                "passages": list(getattr(subject, "passages", []))}
    with open(question["probe"], encoding="utf-8") as file:
        probe = json.load(file)
    if probe["format"] != "lockstep-probe" or probe["version"] != 1:
        return {"error": "this adapter reads lockstep-probe version 1"}
    tensors = {}
    for i, prompt in enumerate(probe["prompts"]):
        ids, steps = prompt["ids"], prompt["steps"]
        whole = prompt.get("passage", "whole") == "whole"
        rows = subject.run(ids, steps) if whole else passage_rows(subject, prompt)
        tensors[f"p{i}.input_ids"] = np.array(ids, dtype=np.int64)
        if steps:
            tensors[f"p{i}.greedy"] = rows.argmax(axis=1).astype(np.int64)
        tensors[f"p{i}.greedy_logits"] = rows
        if whole and prompt["all_positions"] and hasattr(subject, "positions"):
            tensors[f"p{i}.logits"] = subject.positions(ids)
        if prompt["hidden"] and hasattr(subject, "hidden"):
            tensors[f"p{i}.hidden"] = subject.hidden(ids)
    write_safetensors(question["trace"], tensors)
    return {"ok": True}

def serve(make_subject):
    # Libraries print on stdout: whatever is not an answer goes to stderr.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    subject = make_subject()
    for line in sys.stdin:
        try:
            reply = answer(subject, json.loads(line))
        except NotImplementedError as error:  # by what the runtime is: no failure of a way
            reply = {"error": f"{error}", "unsupported": True}
        except Exception as error:  # one prompt's failure; the next may go well
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=out, flush=True)

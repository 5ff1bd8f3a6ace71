#!/usr/bin/env python3
"""ONNX Runtime GenAI's own runtime as a subject of `lockstep verify`: `genai:FOLDER` is short for it.

usage: lockstep verify MODEL "cmd:python3 tools/subjects/genai_subject.py FOLDER"

Needs onnxruntime-genai and numpy. Tokens are chosen here from the logits, so that no search option of
genai_config (a penalty) acts; what the runtime does with the graph, its cache and its window, is its own.
"""
import json, os, sys
import numpy as np
import onnxruntime_genai as og
from probe_server import greedy_rows, serve

class GenAi:
    def __init__(self, folder):
        with open(os.path.join(folder, "genai_config.json"), encoding="utf-8") as file:
            config = json.load(file)
        self.model = og.Model(folder)
        self.context = config["model"]["context_length"]
        self.vocab_size = config["model"]["vocab_size"]
        self.name = f"onnxruntime-genai {og.__version__}"
        self.passages = ["parts", "rewound", "interleaved"]

    def sequence(self, capacity):
        params = og.GeneratorParams(self.model)
        params.set_search_options(max_length=min(self.context, capacity), do_sample=False)
        generator = og.Generator(self.model, params)
        def feed(new):
            generator.append_tokens(np.array(new, dtype=np.int32))
            return np.array(generator.get_logits(), dtype=np.float32).reshape(-1, self.vocab_size)[-1]
        def cut_back(length):
            try:
                generator.rewind_to(length)
            except Exception as error:  # caches of some kinds cannot, which is no failure
                raise NotImplementedError(f"rewind_to: {error}") from error
        return feed, cut_back

    def run(self, ids, steps):
        feed, _ = self.sequence(len(ids) + max(steps, 1))
        return greedy_rows(lambda: feed(ids), lambda token: feed([token]), steps)

if len(sys.argv) != 2:
    sys.exit(__doc__)
serve(lambda: GenAi(sys.argv[1]))

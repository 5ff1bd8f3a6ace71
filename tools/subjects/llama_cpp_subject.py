#!/usr/bin/env python3
"""llama.cpp as a subject of `lockstep verify`, through llama-cpp-python.

usage: lockstep verify MODEL "cmd:python3 tools/subjects/llama_cpp_subject.py FILE.gguf [KV_TYPE]"

Needs llama-cpp-python and numpy. KV_TYPE is the type of the cache (f32, f16 or q8_0; f32 here, llama.cpp's
own choice is f16). llama.cpp quantizes the inputs of quantized matrices, whatever the cache.
"""
import sys
import numpy as np
import llama_cpp
from probe_server import greedy_rows, serve

KV_TYPES = {"f32": 0, "f16": 1, "q8_0": 8}  # ggml_type

class LlamaCpp:
    # Sequences of one llama.cpp batch lie side by side and are never padded: there is no padded_batch.
    passages = ["parts", "rewound", "interleaved"]

    def __init__(self, path, kv="f32"):
        self.path, self.kv = path, KV_TYPES[kv]
        self.llm = self.open(4096)
        self.vocab_size = self.llm.n_vocab()
        self.name = f"llama-cpp-python {llama_cpp.__version__}, {kv} cache"

    def open(self, context):
        # Every position's logits are kept: n_ctx of them, so the context is no larger than needed.
        return llama_cpp.Llama(model_path=self.path, n_ctx=context, n_batch=512, logits_all=True, verbose=False,
                               type_k=self.kv, type_v=self.kv)

    def sequence(self, capacity):
        """A context with a cache of its own; the file's weights are mapped once."""
        llm = self.open(max(capacity, 64))
        def feed(ids):
            llm.eval(ids)
            return np.array(llm.scores[llm.n_tokens - 1], dtype=np.float32)
        def cut_back(length):
            # False: this cache (a state, a window) cannot go back. eval() goes on behind n_tokens.
            if llm._ctx.kv_cache_seq_rm(-1, length, -1) is False:
                raise NotImplementedError("llama.cpp cannot cut this model's cache back")
            llm.n_tokens = length
        return feed, cut_back

    def feed(self, ids):
        self.llm.eval(ids)
        return np.array(self.llm.scores[self.llm.n_tokens - 1], dtype=np.float32)

    def run(self, ids, steps):
        self.llm.reset()
        return greedy_rows(lambda: self.feed(ids), lambda token: self.feed([token]), steps)

    def positions(self, ids):
        self.llm.reset()
        self.feed(ids)
        return np.array(self.llm.scores[:len(ids)], dtype=np.float32)

if len(sys.argv) not in (2, 3) or sys.argv[2:] and sys.argv[2] not in KV_TYPES:
    sys.exit(__doc__)
serve(lambda: LlamaCpp(*sys.argv[1:]))

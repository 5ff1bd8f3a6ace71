#!/usr/bin/env python3
"""Hugging Face transformers as a subject of `lockstep verify`.

usage: lockstep verify MODEL "cmd:python3 tools/subjects/transformers_subject.py FOLDER [float32|bfloat16|...]"

Needs torch, transformers and numpy. Runs on the CPU in float32 unless told otherwise, with eager attention
and a KV cache; generation_config is not asked, so that no penalty acts.
"""
import os, sys
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import numpy as np
import torch, transformers
from probe_server import greedy_rows, serve

class Transformers:
    def __init__(self, folder, dtype="float32"):
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, dtype), attn_implementation="eager").eval()
        self.vocab_size = self.model.config.get_text_config().vocab_size
        self.name = f"transformers {transformers.__version__}, {dtype}"

    def forward(self, ids, **kwargs):
        with torch.no_grad():
            return self.model(torch.tensor([ids]), **kwargs)

    def run(self, ids, steps):
        cache = None
        def feed(new):
            nonlocal cache
            out = self.forward(new, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            return out.logits[0, -1].float().numpy()
        return greedy_rows(lambda: feed(ids), lambda token: feed([token]), steps)

    def positions(self, ids):
        return self.forward(ids).logits[0].float().numpy()

    def hidden(self, ids):
        states = self.forward(ids, output_hidden_states=True).hidden_states
        return np.stack([state[0].float().numpy() for state in states])

if len(sys.argv) not in (2, 3):
    sys.exit(__doc__)
serve(lambda: Transformers(*sys.argv[1:]))

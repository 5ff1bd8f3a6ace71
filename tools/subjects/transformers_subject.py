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
        # A convolution's state takes no padding for nothing and cannot go back; neither can a window's cache.
        kinds = set(getattr(self.model.config.get_text_config(), "layer_types", None) or ["full_attention"])
        self.passages = ["interleaved"]
        if kinds <= {"full_attention", "sliding_attention"}:
            self.passages += ["parts", "padded_batch"]
        if kinds == {"full_attention"} and not getattr(self.model.config, "sliding_window", None):
            self.passages.append("rewound")

    def forward(self, ids, **kwargs):
        with torch.no_grad():
            return self.model(torch.tensor([ids]), **kwargs)

    def sequence(self, capacity=None):
        cache = None
        def feed(new):
            nonlocal cache
            out = self.forward(new, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            return out.logits[0, -1].float().numpy()
        return feed, lambda length: cache.crop(length - cache.get_seq_length())  # negative: so many from the end

    def run(self, ids, steps):
        feed, _ = self.sequence()
        return greedy_rows(lambda: feed(ids), lambda token: feed([token]), steps)

    def batch(self):
        """Two rows, padded on the left."""
        cache, mask = None, torch.zeros(2, 0, dtype=torch.int64)
        def feed(*rows):
            nonlocal cache, mask
            columns = max(map(len, rows))
            ids = torch.tensor([[0] * (columns - len(row)) + row for row in rows])
            seen = torch.tensor([[0] * (columns - len(row)) + [1] * len(row) for row in rows])
            mask = torch.cat([mask, seen], 1)
            with torch.no_grad():
                out = self.model(ids, attention_mask=mask, past_key_values=cache, use_cache=True,
                                 position_ids=(mask.cumsum(1) - 1).clamp(min=0)[:, -columns:])
            cache = out.past_key_values
            return out.logits[0, -1].float().numpy()
        return feed

    def positions(self, ids):
        return self.forward(ids).logits[0].float().numpy()

    def hidden(self, ids):
        states = self.forward(ids, output_hidden_states=True).hidden_states
        return np.stack([state[0].float().numpy() for state in states])

if len(sys.argv) not in (2, 3):
    sys.exit(__doc__)
serve(lambda: Transformers(*sys.argv[1:]))

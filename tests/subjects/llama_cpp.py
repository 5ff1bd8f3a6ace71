"""The shape of llama-cpp-python 0.3, as far as tools/subjects/llama_cpp_subject.py calls it, over made-up
logits: a stand-in for its test."""
import numpy as np

__version__ = "0.3.stub"


class Llama:
    def __init__(self, model_path, *, n_gpu_layers=0, vocab_only=False, n_ctx=512, n_batch=512, logits_all=False,
                 verbose=True, type_k=None, type_v=None, **kwargs):
        assert not kwargs, kwargs
        print("llama_model_loader: noise on stdout")
        self._n_vocab, self.n_tokens, self._n_ctx, self._n_batch = 11, 0, n_ctx, min(n_ctx, n_batch)
        self.scores = np.ndarray((n_ctx if logits_all else n_batch, self._n_vocab), dtype=np.single)
        self.input_ids = np.ndarray((n_ctx,), dtype=np.intc)

    def n_vocab(self):
        return self._n_vocab

    def reset(self):
        self.n_tokens = 0

    def eval(self, tokens):
        for i in range(0, len(tokens), self._n_batch):
            batch = tokens[i:min(len(tokens), i + self._n_batch)]
            n_past, n = self.n_tokens, len(batch)
            if n_past + n > self._n_ctx:
                raise ValueError("Requested tokens exceed context window")
            self.input_ids[n_past:n_past+n] = batch
            for k in range(n):
                seen = self.input_ids[:n_past + k + 1]
                self.scores[n_past + k] = np.sin(seen.sum() * 1.7 + np.arange(11))
            self.n_tokens += n

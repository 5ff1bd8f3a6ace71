"""Writes tests/golden/onnx/decoders: tiny random checkpoints with what transformers computes of them
(as tools/golden/models/make.py does), and onnxruntime-genai's own export of each beside them.

  python tools/golden/onnx/decoders.py tests/golden/onnx/decoders

llama: growing or shared caches. gemma2: a window of 7 in every other layer, whose cache keeps the
last positions alone. Its hidden size is a square and its checkpoint fp32, so that the builder's
roundings (of sqrt(hidden) to two decimals, of 1 + weight to the checkpoint's dtype) round nothing:
both exports are right. llama also as genai-int4: weights in 4 bits, activations in int8
(accuracy_level 4).
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
import make
from tokenizers import Tokenizer, models

OUT = sys.argv[1]
SIZES = dict(vocab_size=67, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
             num_attention_heads=2, num_key_value_heads=1, head_dim=16,
             max_position_embeddings=96, bos_token_id=1, eos_token_id=2, pad_token_id=0)
CASES = {
    "llama": ("llama", dict(SIZES, tie_word_embeddings=True, **make.rope(1e4)), {}),
    "gemma2": ("gemma2", dict(SIZES, sliding_window=7, query_pre_attn_scalar=20,
                              attn_logit_softcapping=5.0, final_logit_softcapping=6.0,
                              **make.rope(1e4)), {"dtype": "fp32"}),
}


def export(folder, out, *precision):
    with tempfile.TemporaryDirectory() as work:
        source = os.path.join(work, "source")
        shutil.copytree(folder, source, ignore=shutil.ignore_patterns("golden*", "genai*"))
        vocab = {f"w{i}": i for i in range(SIZES["vocab_size"])}
        Tokenizer(models.WordLevel(vocab, unk_token="w0")).save(
            os.path.join(source, "tokenizer.json"))
        with open(os.path.join(source, "tokenizer_config.json"), "w") as f:
            json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "w2",
                       "bos_token": "w1", "pad_token": "w0", "unk_token": "w0"}, f)
        subprocess.run([sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", source,
                        "-o", out, "-e", "cpu", "-c", os.path.join(work, "cache"), *precision],
                       check=True, env=dict(os.environ, HF_HUB_OFFLINE="1"))


for name, (model_type, config, extra) in CASES.items():
    make.make(name, model_type, config, extra, OUT, 23, "small")
    export(os.path.join(OUT, name), os.path.join(OUT, name, "genai"), "-p", "fp32")
export(os.path.join(OUT, "llama"), os.path.join(OUT, "llama", "genai-int4"), "-p", "int4",
       "--extra_options", "int4_block_size=16")

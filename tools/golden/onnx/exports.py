#!/usr/bin/env python3
"""A tiny Gemma-2 in bf16 and what two builders make of it: tests/golden/onnx/gemma2/{checkpoint,genai,mobius},
and in fp16 {genai-fp16,mobius-fp16}.

usage: exports.py OUT
needs: transformers 5.24, torch, onnxruntime-genai 0.18, mobius 0.1. The builders' faults are what the tests are about: both round the
embedding scale to two decimals, genai computes `1 + weight` of the norms in bf16, mobius windows the odd layers instead of the even ones.
"""
import json, os, subprocess, sys, tempfile
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM

out = sys.argv[1]
checkpoint = os.path.join(out, "checkpoint")
torch.manual_seed(5)
config = Gemma2Config(vocab_size=40, hidden_size=24, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
                      num_key_value_heads=1, head_dim=16, max_position_embeddings=32, sliding_window=8, query_pre_attn_scalar=12,
                      attn_logit_softcapping=5.0, final_logit_softcapping=4.0, bos_token_id=1, eos_token_id=2, pad_token_id=0)
model = Gemma2ForCausalLM(config)
with torch.no_grad():
    for name, p in model.named_parameters():
        p.copy_(torch.randn_like(p) * (0.1 if "norm" in name else 0.3))
model.to(torch.bfloat16).save_pretrained(checkpoint)

# genai's builder wants a tokenizer beside the weights; a word for each id does.
with tempfile.TemporaryDirectory() as source, tempfile.TemporaryDirectory() as cache:
    for f in os.listdir(checkpoint):
        with open(os.path.join(checkpoint, f), "rb") as a, open(os.path.join(source, f), "wb") as b:
            b.write(a.read())
    from tokenizers import Tokenizer, models
    Tokenizer(models.WordLevel({f"w{i}": i for i in range(40)}, unk_token="w0")).save(os.path.join(source, "tokenizer.json"))
    with open(os.path.join(source, "tokenizer_config.json"), "w") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "w2", "bos_token": "w1", "pad_token": "w0", "unk_token": "w0"}, f)
    for name, precision, provider in (("genai", "fp32", "cpu"), ("genai-fp16", "fp16", "cuda")):
        subprocess.run([sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", source, "-o", os.path.join(out, name),
                        "-p", precision, "-e", provider, "-c", cache], check=True)
# It writes the path that it was given into the file: a relative one.
for name, dtype in (("mobius", "f32"), ("mobius-fp16", "f16")):
    subprocess.run(["mobius", "build", "--model", "./checkpoint", "--dtype", dtype, name], cwd=out, check=True)

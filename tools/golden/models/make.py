#!/usr/bin/env python3
"""Make tiny random checkpoints of real architectures and record what transformers computes on them.

usage: make.py --out DIR [--seed N] [--variant shared|other|small] [--only NAME,...]

tests/golden/models was made by: make.py --out tests/golden/models --variant small --seed 23

Each case is a folder that loads like any Hugging Face checkpoint (config.json, generation_config.json,
model.safetensors or shards) plus:
  golden.json         prompts, greedy ids, noise floor, transformers and torch versions
  golden.safetensors  per prompt i:
    p{i}.input_ids      [T]      int64
    p{i}.logits         [T,V]    float32  one forward over the whole prompt, eager attention, fp32, CPU
    p{i}.hidden         [L+1,T,H] float32 output_hidden_states (embedding, then after each layer;
                                          the last one is after the final norm); for i = 0, 1
                                          (small: i = 0)
    p{i}.greedy         [N]      int64    greedy continuation with a KV cache, no penalties
    p{i}.greedy_logits  [N,V]    float32  the logits that chose each of them
The weights are drawn so that every fact of the architecture matters: unit-scale activations, norm weights
away from 1, non-zero biases.  `noise` in golden.json is max|fp32 - fp64| of the same forward: what the
reference itself cannot promise.  The variants differ in every size: a number that fits one of them by luck does
not fit the other.  `small` also has fewer and shorter prompts, so that the repository can carry all cases.
"""
import argparse, json, math, os, shutil, sys
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch, transformers
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

def base(v, **kw):
    d = dict(vocab_size=320, hidden_size=64, intermediate_size=112, num_hidden_layers=4, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    if v == "other":
        d.update(vocab_size=307, hidden_size=96, intermediate_size=136, num_hidden_layers=5, num_attention_heads=6,
                 num_key_value_heads=3, max_position_embeddings=320)
    if v == "small":
        d.update(vocab_size=131, hidden_size=36, intermediate_size=44, num_hidden_layers=3, num_attention_heads=6,
                 num_key_value_heads=3, max_position_embeddings=192)
    d.update(kw)
    return d

# prompts' lengths, how many of them get hidden states, greedy steps
PROMPTS = {"shared": ((7, 26, 75), 2, 20), "other": ((7, 26, 75), 2, 20), "small": ((9, 41), 1, 8)}

def rope(theta=10000.0, **kw):
    return dict(rope_parameters=dict(rope_theta=theta, rope_type=kw.pop("rope_type", "default"), **kw))

def cases(v):
    """name -> (model_type, config kwargs, extras)"""
    o, s = v == "other", v == "small"
    win = 7 if s else 16 if not o else 11
    hd = 12 if s else 32 if not o else 64   # onnxruntime's attention wants multiples of 16, rotary ones of 16 as well
    B = lambda **kw: base(v, **kw)
    H = B()["hidden_size"]
    c = {}
    gp = dict(vocab_size=131 if s else 320, n_positions=160, n_embd=35 if s else 48 if not o else 60, n_layer=3 if not o else 4,
              n_head=5 if s or o else 3,
              bos_token_id=2, eos_token_id=2, pad_token_id=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    c["gpt2"] = ("gpt2", dict(gp), {})
    c["gpt2-variants"] = ("gpt2", dict(gp, activation_function="gelu", n_inner=100, scale_attn_by_inverse_layer_idx=True,
                                       layer_norm_epsilon=1e-3, tie_word_embeddings=False), {})
    c["llama"] = ("llama", B(tie_word_embeddings=True, rms_norm_eps=1e-5, **rope(100000.0)), {"dtype": "bf16"})
    c["llama-bias-headdim"] = ("llama", B(head_dim=hd, attention_bias=True, mlp_bias=True, tie_word_embeddings=False, **rope()), {})
    c["llama-rope-llama3"] = ("llama", B(**rope(500000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                original_max_position_embeddings=32)), {})
    c["llama-rope-linear"] = ("llama", B(**rope(rope_type="linear", factor=4.0)), {})
    c["llama-rope-dynamic"] = ("llama", B(max_position_embeddings=32, **rope(rope_type="dynamic", factor=2.0)), {"skip_greedy_check": True})
    c["llama-rope-yarn"] = ("llama", B(**rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)), {})
    c["llama-partial-rotary-sharded"] = ("llama", B(head_dim=hd, **rope(partial_rotary_factor=0.5)), {"shard": True, "dtype": "fp16"})
    c["mistral-sliding"] = ("mistral", B(sliding_window=win, **rope()), {})
    c["qwen2"] = ("qwen2", B(tie_word_embeddings=True, **rope(1000000.0)), {"repetition_penalty": 1.1, "dtype": "bf16"})
    c["qwen2-sliding"] = ("qwen2", B(use_sliding_window=True, sliding_window=win, max_window_layers=1 if s else 2, **rope()), {})
    c["qwen3"] = ("qwen3", B(head_dim=hd, **rope(1000000.0)), {})
    GH = 42 if s else 80 if not o else 120   # its square root is not a round number, so that a rounded embedding scale shows
    c["gemma"] = ("gemma", B(hidden_size=GH, head_dim=hd, hidden_activation="gelu_pytorch_tanh", **rope()), {})
    g2 = B(hidden_size=GH, head_dim=hd, query_pre_attn_scalar=20, sliding_window=win, attn_logit_softcapping=5.0, final_logit_softcapping=4.0, **rope())
    c["gemma2"] = ("gemma2", g2, {})
    gl = 4 if s else 6 if not o else 7
    g3 = B(hidden_size=GH, head_dim=hd, num_hidden_layers=gl, query_pre_attn_scalar=32, sliding_window=win,
           layer_types=[("full_attention" if (i + 1) % 3 == 0 else "sliding_attention") for i in range(gl)])
    two = lambda full: dict(rope_parameters=dict(full_attention=full, sliding_attention=dict(rope_theta=10000.0, rope_type="default")))
    c["gemma3"] = ("gemma3_text", dict(g3, **two(dict(rope_theta=1000000.0, rope_type="default"))), {})
    c["gemma3-rope-scaled"] = ("gemma3_text", dict(g3, **two(dict(rope_theta=1000000.0, rope_type="linear", factor=8.0))), {"dtype": "bf16"})
    c["gemma3-old-config"] = ("gemma3_text", dict(g3, **two(dict(rope_theta=1000000.0, rope_type="linear", factor=8.0))), {"old_rope": True})
    c["smollm3"] = ("smollm3", B(num_hidden_layers=4 if s else 5, no_rope_layers=[1, 1, 0, 1] if s else [1, 1, 1, 0, 1], **rope(2000000.0)), {})
    c["granite"] = ("granite", B(embedding_multiplier=12.0, attention_multiplier=0.0883, residual_multiplier=0.22, logits_scaling=8.0,
                                 attention_bias=False, **rope()), {})
    c["nemotron"] = ("nemotron", B(head_dim=hd, hidden_act="relu2", norm_eps=1e-5, attention_bias=False, mlp_bias=False, **rope(partial_rotary_factor=0.5)), {})
    c["phi"] = ("phi", B(num_attention_heads=3 if s else 2, num_key_value_heads=1 if o or s else 2, hidden_act="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0, **rope(partial_rotary_factor=0.5)), {})
    n = (H // B()["num_attention_heads"]) // 2
    c["phi3"] = ("phi3", B(sliding_window=None, resid_pdrop=0.0, embd_pdrop=0.0, original_max_position_embeddings=32,
                           **rope(rope_type="longrope", short_factor=[1.0 + 0.05 * i for i in range(n)], long_factor=[1.5 + 0.4 * i for i in range(n)],
                                  original_max_position_embeddings=32)), {"skip_greedy_check": True})
    c["olmo2"] = ("olmo2", B(**rope(500000.0)), {})
    c["olmo3-sliding"] = ("olmo3", B(sliding_window=win, layer_types=[("full_attention" if (i + 1) % 2 == 0 else "sliding_attention")
                                                                     for i in range(B()["num_hidden_layers"])], **rope(500000.0)), {})
    c["starcoder2"] = ("starcoder2", B(hidden_act="gelu_pytorch_tanh", use_bias=True, norm_epsilon=1e-5, sliding_window=None,
                                       residual_dropout=0.0, embedding_dropout=0.0, attention_dropout=0.0, **rope()), {})
    c["cohere2"] = ("cohere2", B(sliding_window=win, logit_scale=0.25, layer_types=[("full_attention" if (i + 1) % (3 if s else 4) == 0 else "sliding_attention")
                                                             for i in range(B()["num_hidden_layers"])], **rope()), {})
    c["glm4"] = ("glm4", B(head_dim=hd, attention_bias=True, **rope(partial_rotary_factor=0.5)), {})
    lt = ["conv", "full_attention", "conv", "full_attention"] if not o else ["conv", "conv", "full_attention", "conv", "full_attention"]
    if s: lt = ["conv", "full_attention", "conv"]
    c["lfm2"] = ("lfm2", B(layer_types=lt, conv_L_cache=3 if not o else 4, conv_bias=o or s, block_auto_adjust_ff_dim=True, block_multiple_of=16,
                           block_ffn_dim_multiplier=1.0, **rope(1000000.0)), {})
    E, K = (5, 3) if o else (4, 3) if s else (6, 2)
    M = 20 if s else 40
    c["mixtral"] = ("mixtral", B(num_local_experts=E, num_experts_per_tok=K, sliding_window=None, **rope(1000000.0)), {})
    c["qwen2-moe"] = ("qwen2_moe", B(moe_intermediate_size=M, shared_expert_intermediate_size=28 if s else 56, num_experts=E, num_experts_per_tok=K,
                                     norm_topk_prob=False, decoder_sparse_step=1, **rope(1000000.0)), {})
    c["qwen3-moe"] = ("qwen3_moe", B(head_dim=hd, moe_intermediate_size=M, num_experts=E, num_experts_per_tok=K, norm_topk_prob=True,
                                     mlp_only_layers=[1], **rope(1000000.0)), {"dtype": "bf16"})
    c["olmoe"] = ("olmoe", B(num_experts=E, num_experts_per_tok=K, norm_topk_prob=False, clip_qkv=None, **rope()), {})
    c["granitemoe"] = ("granitemoe", B(num_local_experts=E, num_experts_per_tok=K, embedding_multiplier=12.0, attention_multiplier=0.1,
                                       residual_multiplier=0.22, logits_scaling=6.0, **rope()), {})
    c["gpt-oss"] = ("gpt_oss", B(head_dim=hd, num_local_experts=E, num_experts_per_tok=K, sliding_window=win,
                                 layer_types=[("sliding_attention" if i % 2 == 0 else "full_attention") for i in range(B()["num_hidden_layers"])],
                                 **rope(150000.0, rope_type="yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                                        original_max_position_embeddings=32)), {})
    c["phimoe"] = ("phimoe", B(num_local_experts=E, num_experts_per_tok=2, sliding_window=None, attention_bias=True, lm_head_bias=True, **rope()), {})
    c["deepseek-v3"] = ("deepseek_v3", B(num_key_value_heads=B()["num_attention_heads"], moe_intermediate_size=M, n_routed_experts=8, num_experts_per_tok=K,
                                         n_group=4, topk_group=2, n_shared_experts=1, first_k_dense_replace=1,
                                         q_lora_rank=16 if s else 32, kv_lora_rank=12 if s else 24, qk_nope_head_dim=8 if s else 16,
                                         qk_rope_head_dim=4 if s else 8, v_head_dim=10 if s else 16, routed_scaling_factor=2.5, norm_topk_prob=True,
                                         **rope()), {})
    c["lfm2-moe"] = ("lfm2_moe", B(layer_types=lt, conv_L_cache=3, conv_bias=False, moe_intermediate_size=M, num_experts=E, num_experts_per_tok=K,
                                   num_dense_layers=1, use_expert_bias=True, norm_topk_prob=True, routed_scaling_factor=1.0, **rope(1000000.0)), {})
    return c

FP32 = {"gpt2", "gpt2-variants", "llama-bias-headdim", "gemma2", "gemma3", "gemma3-old-config", "granite", "mixtral"}

def randomise(model, seed):
    g = torch.Generator().manual_seed(seed)
    N = lambda shape, std, mean=0.0: torch.randn(shape, generator=g, dtype=torch.float32) * std + mean
    done = set()
    c = model.config
    tied = getattr(c, "tie_word_embeddings", False)
    # embeddings enter the residual stream multiplied by this; keep them from drowning the layers
    scale = math.sqrt(c.hidden_size) / 2 if "gemma" in c.model_type else getattr(c, "embedding_multiplier", 1.0) / 2
    with torch.no_grad():
        for name, p in sorted(model.named_parameters(), key=lambda x: x[0]):
            if p.data_ptr() in done: continue
            done.add(p.data_ptr())
            leaf = name.split(".")[-1]
            if "norm" in name.lower() or ".ln_" in name or name.startswith("transformer.ln_"):
                if leaf == "bias": p.copy_(N(p.shape, 0.2))
                else: p.copy_(N(p.shape, 0.3, p.flatten()[0].item()))   # 1 for plain norms, 0 for 1+w norms
                if "gemma" in c.model_type and name == "model.norm.weight": p.add_(9.0)   # so that the final softcap bites
            elif "embed" in name or ".wte." in name or ".wpe." in name:
                p.copy_(N(p.shape, (0.12 if tied else 0.6) / scale))
            elif p.dim() == 1 or leaf.endswith("bias"):
                p.copy_(N(p.shape, 0.25))
            else:
                conv1d = any(k in name for k in ("c_attn", "c_proj", "c_fc"))
                fan_in = p.shape[-2] if conv1d or (p.dim() == 3 and "conv" not in name and p.shape[-1] != 1 and leaf in ("gate_up_proj", "down_proj") and model.config.model_type == "gpt_oss") else p.shape[-1]
                p.copy_(N(p.shape, 1.3 / math.sqrt(fan_in)))
        for name, b in model.named_buffers():
            if "expert_bias" in name or "e_score_correction_bias" in name:
                b.copy_(torch.randn(b.shape, generator=g) * 0.3)

def greedy(model, ids, n):
    out, rows, past, cur = [], [], None, ids[None]
    for _ in range(n):
        r = model(input_ids=cur, past_key_values=past, use_cache=True)
        past = r.past_key_values
        row = r.logits[0, -1].float()
        t = int(row.argmax())
        rows.append(row.clone()); out.append(t)
        cur = torch.tensor([[t]])
    return torch.tensor(out), torch.stack(rows)

def make(name, mt, kw, extra, out, seed, variant):
    torch.manual_seed(seed)
    cfg = AutoConfig.for_model(mt, **kw)
    cfg._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(cfg, attn_implementation="eager").float().eval()
    randomise(model, seed)
    dtype = extra.get("dtype") or ("fp32" if name in FP32 else "bf16")
    dt = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[dtype]
    d = os.path.join(out, name)
    shutil.rmtree(d, ignore_errors=True); os.makedirs(d)
    model.generation_config.repetition_penalty = extra.get("repetition_penalty")
    model.to(dt).save_pretrained(d, max_shard_size=("20KB" if variant == "small" else "60KB") if extra.get("shard") else "5GB")
    if extra.get("old_rope"):          # the config layout that checkpoints saved before transformers 5 carry
        p = os.path.join(d, "config.json"); j = json.load(open(p)); rp = j.pop("rope_parameters")
        j["rope_theta"] = rp["full_attention"]["rope_theta"]; j["rope_local_base_freq"] = rp["sliding_attention"]["rope_theta"]
        j["rope_scaling"] = {"rope_type": "linear", "factor": rp["full_attention"]["factor"]}
        j.pop("layer_types", None); j.pop("_sliding_window_pattern", None); j["sliding_window_pattern"] = 3
        json.dump(j, open(p, "w"), indent=2)
    load = lambda t: AutoModelForCausalLM.from_pretrained(d, dtype=t, attn_implementation="eager",
                                                          experts_implementation="eager").eval()
    m32, m64 = load(torch.float32), load(torch.float64)
    V = cfg.vocab_size
    g = torch.Generator().manual_seed(seed + 1)
    T, info = {}, []
    lengths, num_hidden, steps = PROMPTS[variant]
    for i, n in enumerate(lengths):
        ids = torch.randint(3, V, (n,), generator=g); ids[0] = 1
        with torch.no_grad():
            r = m32(input_ids=ids[None], output_hidden_states=True, use_cache=False)
            l64 = m64(input_ids=ids[None], use_cache=False).logits[0]
            gi, gl = greedy(m32, ids, steps)
        lg = r.logits[0].float()
        T[f"p{i}.input_ids"] = ids
        T[f"p{i}.logits"] = lg.contiguous()
        if i < num_hidden: T[f"p{i}.hidden"] = torch.stack([h[0].float() for h in r.hidden_states]).contiguous()
        T[f"p{i}.greedy"] = gi; T[f"p{i}.greedy_logits"] = gl.contiguous()
        top2 = torch.topk(gl, 2).values
        info.append(dict(tokens=n, noise=float((lg.double() - l64.double()).abs().max()), logits_std=float(lg.std()),
                         prefill_vs_decode=float((gl[0] - lg[-1]).abs().max()), greedy=gi.tolist(),
                         min_top2_gap=float((top2[:, 0] - top2[:, 1]).min())))
        if extra.get("repetition_penalty") and i == 1:
            a = m32.generate(input_ids=ids[None], attention_mask=torch.ones(1, n, dtype=torch.long), do_sample=False, max_new_tokens=steps, eos_token_id=None, pad_token_id=0)
            info[-1]["greedy_with_generation_config"] = a[0, n:].tolist()
    save_file(T, os.path.join(d, "golden.safetensors"))
    json.dump(dict(case=name, model_type=mt, seed=seed, transformers=transformers.__version__, torch=torch.__version__,
                   attention="eager", compute="float32", checkpoint_dtype=dtype, prompts=info),
              open(os.path.join(d, "golden.json"), "w"), indent=1)
    size = sum(os.path.getsize(os.path.join(d, f)) for f in os.listdir(d)) / 1e6
    print(f"{name:32s} {size:5.2f} MB noise {max(x['noise'] for x in info):.1e} std {info[-1]['logits_std']:.2f} "
          f"gap {min(x['min_top2_gap'] for x in info):.1e} pd {max(x['prefill_vs_decode'] for x in info):.1e} uniq {len(set(info[-1]['greedy']))}", flush=True)

def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", required=True); ap.add_argument("--seed", type=int, default=11)
    ap.add_argument("--variant", default="shared", choices=["shared", "other", "small"]); ap.add_argument("--only", default="")
    a = ap.parse_args()
    only = set(filter(None, a.only.split(",")))
    bad = []
    for k, (mt, kw, ex) in cases(a.variant).items():
        if only and k not in only: continue
        try: make(k, mt, kw, ex, a.out, a.seed, a.variant)
        except Exception as e:
            bad.append(k); print(f"{k:32s} FAILED {type(e).__name__}: {str(e)[:300]}", flush=True)
    sys.exit(1 if bad else 0)

if __name__ == "__main__":
    main()

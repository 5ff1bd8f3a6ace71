#include "faults/catalog.h"

#include <fmt/format.h>

#include <algorithm>

#include "faults/edit_maker.h"
#include "faults/fault_edits.h"
#include "spec/rope_facts.h"

namespace lockstep {
namespace {

// THE TABLE. One row a fault; docs/adding/fault.md shows how to add one.
// clang-format off
constexpr Fault kFaults[] = {
    {.id = "rope-scaling-on-local-layers", .number = "F1", .name = "RoPE scaling on sliding layers too",
     .what = "The scaling of the global layers' RoPE is applied to the sliding layers as well.",
     .seen = "onnxruntime-genai#2277, ferrox#39", .shows = Shows::kSecondToken,
     .needs = "scaled RoPE on global layers, beside sliding layers whose RoPE is not",
     .how = "from position 1, first at layer 0's attention; grows with position", .edits = fault_edits::ScalingOnLocalLayers},
    {.id = "rope-scaling-missing", .number = "F2", .name = "RoPE scaling missing",
     .what = "No layer's RoPE is scaled.",
     .seen = "mlx-vlm#1709, mlxcel#1340", .shows = Shows::kPastOriginal,
     .needs = "scaled RoPE",
     .how = "from the first scaled layer; short prompts nearly agree", .edits = fault_edits::ScalingMissing},
    {.id = "rope-theta-of-other-layers", .number = "F4", .name = "RoPE base of the other kind of layer",
     .what = "Sliding layers rotate with the global base, or global layers with the sliding one.",
     .seen = "gemma.cpp (its list of names lacks Gemma-3-270M), onnxruntime-genai#2076", .shows = Shows::kSecondToken,
     .needs = "sliding and global layers that rotate with different bases",
     .how = "at the layers that got the other's base", .edits = fault_edits::RopeOfOtherLayers},
    {.id = "rope-attention-factor", .number = "F3", .name = "RoPE attention factor wrong",
     .what = "The factor on cos and sin (YaRN's mscale) is left out, applied twice, or not cancelled by mscale_all_dim.",
     .seen = "llama.cpp#17980, vllm#48623, exllamav3#259", .shows = Shows::kSecondToken,
     .needs = "YaRN or LongRoPE with an attention factor that the mistake changes",
     .how = "every layer, one constant factor on the rotary part of the scores", .edits = fault_edits::AttentionFactor},
    {.id = "yarn-bands", .number = "F4", .name = "YaRN's ramp wrong",
     .what = "The ramp's ends are not rounded, change places, or the factor is inverted.",
     .seen = "onnxruntime-genai#2076", .shows = Shows::kSecondToken,
     .needs = "YaRN",
     .how = "per frequency, grows with position", .edits = fault_edits::YarnBands},
    {.id = "llama3-bands", .number = "F5", .name = "llama3 frequency bands wrong",
     .what = "The three bands become one factor for all, or the constants of one model size are used for all.",
     .seen = "llama.cpp#8650, TransformerLens#910", .shows = Shows::kSecondToken,
     .needs = "llama3 scaling of RoPE",
     .how = "long prompts, middle frequencies", .edits = fault_edits::Llama3Bands},
    {.id = "nope-ignored", .number = "F6", .name = "layers without RoPE rotate",
     .what = "Every layer rotates, also those that the schedule exempts.",
     .seen = "transformers#43756, executorch#22043", .shows = Shows::kSecondToken,
     .needs = "layers without RoPE beside layers that rotate",
     .how = "at the layers that should not rotate", .edits = fault_edits::NopeIgnored},
    {.id = "nope-inverted", .number = "F6", .name = "the no-RoPE schedule is inverted",
     .what = "Layers that should rotate do not, and the reverse.",
     .seen = "executorch#22043", .shows = Shows::kSecondToken,
     .needs = "layers without RoPE beside layers that rotate",
     .how = "at every layer, from position 1", .edits = fault_edits::NopeInverted},
    {.id = "rope-row-order", .number = "F7", .name = "halves against interleaved pairs",
     .what = "Rows of q and k lie in the order of the other RoPE layout.",
     .seen = "llama.cpp#3018, tensai#37", .shows = Shows::kSecondToken,
     .needs = "RoPE that turns more than one pair of a head",
     .how = "position 0 is exact, the rest is garbage", .edits = fault_edits::RowOrder},
    {.id = "rope-row-order-gqa", .number = "F7", .name = "row order undone with the wrong head count",
     .what = "k's rows are permuted by the number of query heads, not of its own.",
     .seen = "llama.cpp#3018", .shows = Shows::kSecondToken,
     .needs = "RoPE, and fewer key-value heads whose rows divide by the query heads",
     .how = "position 0 is exact, the rest is garbage; only with fewer kv heads", .edits = fault_edits::RowOrderByWrongHeads},
    {.id = "window-schedule-shifted", .number = "F8", .name = "sliding and global layers exchanged",
     .what = "The schedule of sliding windows is shifted by one layer.",
     .seen = "onnxruntime-genai (Gemma-2), mobius", .shows = Shows::kPastWindow,
     .needs = "neighbouring layers with different windows",
     .how = "exact until the prompt exceeds the window", .edits = fault_edits::WindowShifted},
    {.id = "window-off-by-one", .number = "F9", .name = "window off by one",
     .what = "A position sees one more or one fewer of those before it.",
     .seen = "mlx-lm#390, mobius#371", .shows = Shows::kPastWindow,
     .needs = "a sliding window",
     .how = "first at the length of the window, or one later", .edits = fault_edits::WindowOffByOne},
    {.id = "window-dropped", .number = "F9", .name = "no sliding window",
     .what = "Sliding layers see everything.",
     .seen = "transformers#37574, mlx-lm#390", .shows = Shows::kPastWindow,
     .needs = "a sliding window",
     .how = "first one token past the window", .edits = fault_edits::WindowDropped},
    {.id = "window-where-none", .number = "F9", .name = "a window where there is none",
     .what = "`use_sliding_window: false` or the schedule is ignored: global layers slide.",
     .seen = "mobius (Qwen2)", .shows = Shows::kPastWindow,
     .needs = "an attention layer without a sliding window",
     .how = "exact until the prompt exceeds the window", .edits = fault_edits::WindowWhereNone},
    {.id = "longrope-factors", .number = "F10", .name = "long and short factors exchanged",
     .what = "LongRoPE uses its short factors at every length, or its long ones.",
     .seen = "onnxruntime-genai#1161", .shows = Shows::kPastOriginal,
     .needs = "LongRoPE whose short and long factors differ",
     .how = "on one side of the original context length", .edits = fault_edits::LongFactors},
    {.id = "norm-offset-bf16", .number = "F11", .name = "1 + weight of a norm rounded to bf16",
     .what = "The offset is added in the weight's own 16 bits.",
     .seen = "onnxruntime-genai#2884, transformers#29402", .shows = Shows::kAnywhere,
     .needs = "norms with an offset (1 + weight)",
     .how = "every norm, coherent text", .edits = fault_edits::NormOffsetRounded},
    {.id = "gelu-form", .number = "F12", .name = "erf GELU for tanh, or the reverse",
     .what = "Another form of GELU than the checkpoint names.",
     .seen = "CTranslate2#1658, mlx-embeddings#81", .shows = Shows::kAnywhere,
     .needs = "GELU, by erf or by tanh",
     .how = "each MLP, down to 5e-4 an element", .edits = fault_edits::GeluOther},
    {.id = "norm-offset-missing", .number = "F13", .name = "norm offset missing",
     .what = "Norms multiply by w where the model has 1 + w.",
     .seen = "gemma family, Nemotron", .shows = Shows::kAnywhere,
     .needs = "norms with an offset (1 + weight)",
     .how = "everywhere, large", .edits = fault_edits::NormOffsetMissing},
    {.id = "norm-offset-twice", .number = "F13", .name = "norm offset added twice",
     .what = "The offset is added to weights that hold it already (GGUF's are pre-folded).",
     .seen = "gemma family, Nemotron", .shows = Shows::kAnywhere,
     .needs = "norms with an offset (1 + weight)",
     .how = "everywhere, large", .edits = fault_edits::NormOffsetTwice},
    {.id = "norm-cast-first", .number = "F14", .name = "norm rounded before the weight",
     .what = "x / rms is cast to bf16 before the weight multiplies it.",
     .seen = "TransformerEngine#1132, gemma_pytorch#67", .precision = true, .shows = Shows::kAnywhere,
     .needs = "RMS norms",
     .how = "noise of 16 bits in every norm, coherent text", .edits = fault_edits::NormCast},
    {.id = "inverse-rms-bf16", .number = "F15", .name = "inverse rms rounded to bf16",
     .what = "1 / rms is kept in 16 bits.",
     .seen = "IRON#139", .precision = true, .shows = Shows::kAnywhere,
     .needs = "norms",
     .how = "grows linearly with depth", .edits = fault_edits::InverseRmsRounded},
    {.id = "residual-16-bit", .number = "F16", .name = "16-bit residual stream",
     .what = "The sum that runs through the layers is rounded to fp16 or bf16.",
     .seen = "onnxruntime-genai#1441", .precision = true, .shows = Shows::kAnywhere,
     .needs = "a residual stream",
     .how = "grows with depth", .edits = fault_edits::ResidualRounded},
    {.id = "attention-scale", .number = "F17", .name = "attention scale from the wrong size",
     .what = "Scores are scaled by head_dim instead of query_pre_attn_scalar, by hidden_size / heads, by nothing, or without YaRN's m^2.",
     .seen = "ferrox#65 (Gemma-2 and Gemma-3 27B)", .shows = Shows::kSecondToken,
     .needs = "an attention scale that differs from the wrong ones",
     .how = "softmax sharper or flatter at every layer", .edits = fault_edits::AttentionScale},
    {.id = "softcap-missing", .number = "F18", .name = "soft cap missing",
     .what = "Scores, or logits, are not capped.",
     .seen = "lmdeploy#2842", .shows = Shows::kAnywhere,
     .needs = "a soft cap of scores or logits",
     .how = "where scores are large", .edits = fault_edits::SoftcapMissing},
    {.id = "softcap-after-mask", .number = "F18", .name = "soft cap after the mask",
     .what = "The mask's -inf becomes -cap: what is masked is attended to.",
     .seen = "onnxruntime#28370", .shows = Shows::kSecondToken,
     .needs = "a soft cap of scores",
     .how = "from position 0 of a call of several tokens", .edits = fault_edits::SoftcapAfterMask},
    {.id = "causal-corner", .number = "F19", .name = "causal mask aligned to the wrong corner",
     .what = "With a cache, query t of a call sees keys 0 to t.",
     .seen = "onnxruntime#29020", .shows = Shows::kSecondCall,
     .needs = "attention",
     .how = "decoding, or the second chunk of a prompt", .edits = fault_edits::CausalCorner},
    {.id = "multiplier-dropped", .number = "F20", .name = "a multiplier dropped",
     .what = "The scale of the embedding, the residuals, the logits or the routed experts is left out.",
     .seen = "CTranslate2#1882", .shows = Shows::kAnywhere,
     .needs = "a multiplier (of the embedding, residuals, logits or experts) that is not 1",
     .how = "everywhere, large", .edits = fault_edits::MultiplierDropped},
    {.id = "multiplier-inverted", .number = "F20", .name = "a multiplier inverted",
     .what = "Divides where it should multiply, or the reverse.",
     .seen = "onnxruntime-genai builder (Granite)", .shows = Shows::kAnywhere,
     .needs = "a multiplier (of the embedding, residuals, logits or experts) that is not 1",
     .how = "everywhere, large", .edits = fault_edits::MultiplierInverted},
    {.id = "multiplier-rounded", .number = "F20", .name = "a multiplier rounded",
     .what = "The scale is rounded to two decimals, or to bf16.",
     .seen = "onnxruntime-genai builder, mobius (Gemma)", .shows = Shows::kAnywhere,
     .needs = "a multiplier that two decimals, or bf16, would change",
     .how = "4e-5 relative, everywhere", .edits = fault_edits::MultiplierRounded},
    {.id = "activation", .number = "F21", .name = "wrong activation",
     .what = "Another function between the MLP's matrices.",
     .seen = "vllm#6611 (Nemotron)", .shows = Shows::kAnywhere,
     .needs = "an activation that has a usual confusion (SiLU, GELU, ReLU, squared ReLU), and no clamp",
     .how = "each MLP", .edits = fault_edits::ActivationOther},
    {.id = "rotary-fraction", .number = "F22", .name = "wrong rotary fraction",
     .what = "More, or fewer, elements of each head turn.",
     .seen = "Nemotron, Phi ports", .shows = Shows::kSecondToken,
     .needs = "RoPE without a list of factors, of which another fraction can turn",
     .how = "from position 1", .edits = fault_edits::RotaryFraction},
    {.id = "glu-clamp-missing", .number = "F23", .name = "clamped GLU without its constants",
     .what = "The limit, alpha or the + 1 of gpt-oss' GLU is not applied.",
     .seen = "transformers#40197, atomic-llama-cpp-turboquant#68", .shows = Shows::kAnywhere,
     .needs = "a clamped GLU (gpt-oss)",
     .how = "the limit: only where activations exceed it", .edits = fault_edits::ClampMissing},
    {.id = "padding-positions", .number = "F25", .name = "padding moves the positions",
     .what = "Position ids count the padding on the left.",
     .seen = "transformers#9173", .shows = Shows::kAnywhere,
     .needs = "learned positions",
     .how = "padded batches, learned positions", .edits = fault_edits::PositionsOfPadding},
    {.id = "router-order", .number = "F26", .name = "router: softmax on the other side of top-k",
     .what = "The chosen experts' weights come from another softmax, or from none.",
     .seen = "mlxcel#391, sglang#35160", .shows = Shows::kAnywhere,
     .needs = "a router whose order of softmax and top-k matters",
     .how = "layers of experts", .edits = fault_edits::RouterOrder},
    {.id = "router-normalization", .number = "F26", .name = "router: weights renormalized or not",
     .what = "The chosen weights are divided by their sum where they should not, or the reverse, or a bias of the router is left out.",
     .seen = "sglang#35160", .shows = Shows::kAnywhere,
     .needs = "a router that normalizes, or might, or has a bias",
     .how = "layers of experts", .edits = fault_edits::RouterNormalization},
    {.id = "clamp-where-plain", .number = "F27", .name = "gpt-oss' GLU for a plain one",
     .what = "Alpha 1.702, the limit and the + 1 are used for a plain SwiGLU.",
     .seen = "mobius#324, onnxruntime-genai#2062", .shows = Shows::kAnywhere,
     .needs = "a plain gated MLP with SiLU",
     .how = "every MLP", .edits = fault_edits::ClampWherePlain},
    {.id = "gate-up-swapped", .number = "F28", .name = "gate and up swapped",
     .what = "The activation is on the other half.",
     .seen = "mobius#326, onnxruntime#25619", .shows = Shows::kAnywhere,
     .needs = "a gated MLP",
     .how = "every MLP, garbage", .edits = fault_edits::GateUpSwapped},
    {.id = "gate-up-by-stride", .number = "F28", .name = "gate and up read interleaved",
     .what = "Rows that lie one after the other are taken in turns.",
     .seen = "mobius#326, onnxruntime#25619", .shows = Shows::kAnywhere,
     .needs = "a gated MLP",
     .how = "every MLP, garbage", .edits = fault_edits::GateUpInterleaved},
    {.id = "gate-up-in-halves", .number = "F28", .name = "gate and up read in halves",
     .what = "Rows that lie in turns are split in the middle.",
     .seen = "mobius#326", .shows = Shows::kAnywhere,
     .needs = "a gated MLP",
     .how = "every MLP, garbage", .edits = fault_edits::GateUpConcatenated},
    {.id = "block-scale-axis", .number = "F29", .name = "block scales along the wrong axis",
     .what = "Every block of a row is scaled as its first one.",
     .seen = "onnxruntime#29138, onnxruntime-genai#2209", .shows = Shows::kAnywhere,
     .needs = "matrices that exporters quantize",
     .how = "right per tensor, wrong per block; rows of one block hide it", .edits = fault_edits::ScaleAxis},
    {.id = "nibble-order", .number = "F30", .name = "nibbles in the wrong order",
     .what = "Neighbouring 4-bit codes change places.",
     .seen = "onnxruntime#29635, imp#567", .shows = Shows::kAnywhere,
     .needs = "matrices that exporters quantize",
     .how = "an error as large as the signal", .edits = fault_edits::NibbleOrder},
    {.id = "tail-block", .number = "F31", .name = "tail block not read",
     .what = "The last columns of each row are zeros.",
     .seen = "onnxruntime#29067, onnxruntime#28551, onnxruntime#32663", .shows = Shows::kAnywhere,
     .needs = "matrices that exporters quantize",
     .how = "last columns", .edits = fault_edits::TailBlock},
    {.id = "zero-point-absent", .number = "F33", .name = "absent zero point taken as 0",
     .what = "Codes are read without their middle of 8 (128): each block is shifted by 8 scales.",
     .seen = "onnxruntime#31692", .shows = Shows::kAnywhere,
     .needs = "matrices that exporters quantize",
     .how = "every row shifted", .edits = fault_edits::ZeroPointAbsent},
    {.id = "zero-point-off-by-one", .number = "F35", .name = "zero point off by one",
     .what = "Each block is shifted by one scale: 127 for 128, 7 for 8.",
     .seen = "Quark#20, GPTQModel#2350, onnxruntime#25823", .shows = Shows::kAnywhere,
     .needs = "matrices that exporters quantize",
     .how = "every row shifted a little", .edits = fault_edits::ZeroPointOffByOne},
    {.id = "head-untied", .number = "F34", .name = "tied head untied",
     .what = "The head is a matrix of its own that nobody filled.",
     .seen = "onnxruntime-genai#2306, llama.cpp#12567", .shows = Shows::kAnywhere,
     .needs = "a head that is the embedding (tied)",
     .how = "logits are uniform", .edits = fault_edits::HeadUntied},
    {.id = "head-tied", .number = "F34", .name = "untied head tied",
     .what = "The head is the embedding.",
     .seen = "llama.cpp#12567", .shows = Shows::kAnywhere,
     .needs = "a head of its own (untied)",
     .how = "logits unrelated, layers exact", .edits = fault_edits::HeadTied},
    {.id = "tensor-zeroed", .number = "F36", .name = "a tensor zeroed",
     .what = "One matrix, or one expert's, holds zeros.",
     .seen = "optimum#1755", .shows = Shows::kAnywhere,
     .needs = "one of the matrices o, k, down, or an expert",
     .how = "from that layer on", .edits = fault_edits::TensorZeroed},
    {.id = "tensor-of-other-layer", .number = "F36", .name = "a tensor of another layer",
     .what = "One weight is the layer's before.",
     .seen = "optimum#1755", .shows = Shows::kAnywhere,
     .needs = "two neighbouring layers of the same shapes",
     .how = "from that layer on", .edits = fault_edits::TensorOfOtherLayer},
    {.id = "ring-cache", .number = "F37", .name = "ring cache wrong past the window",
     .what = "The cache of a sliding layer does not turn, or loses a row as it does.",
     .seen = "mistral.rs#246, transformers#37574", .shows = Shows::kSecondCallWindow,
     .needs = "a sliding window",
     .how = "decoding past the window", .edits = fault_edits::RingCacheWrong},
    {.id = "cache-lost", .number = "F38", .name = "state lost between calls",
     .what = "A later call starts without the convolutions' state, or without the keys and values before it.",
     .seen = "onnxruntime-genai#1110, llama.cpp#27148", .shows = Shows::kSecondCall,
     .needs = "attention, or short convolutions",
     .how = "second chunk, or decoding", .edits = fault_edits::CacheLost},
    {.id = "cache-stale", .number = "F38", .name = "stale row in the cache",
     .what = "The first row of a later call keeps what stood there.",
     .seen = "onnxruntime-genai#2140, sglang#24717", .shows = Shows::kSecondCall,
     .needs = "attention",
     .how = "second turn, second slot, second chunk", .edits = fault_edits::CacheStale},
    {.id = "layers-swapped", .number = "F39", .name = "layers mapped to the wrong weights",
     .what = "Two neighbouring layers hold each other's weights.",
     .seen = "", .shows = Shows::kAnywhere,
     .needs = "two neighbouring layers of the same shapes",
     .how = "from that layer on", .edits = fault_edits::LayersSwapped},
    {.id = "norm-eps", .number = "", .name = "epsilon 1e-5 for 1e-6",
     .what = "Norms add another epsilon.",
     .seen = "", .shows = Shows::kAnywhere,
     .needs = "norms",
     .how = "everywhere, small, larger where activations are small", .edits = fault_edits::NormEps},
    {.id = "qk-norm-after-rope", .number = "", .name = "q and k normed after RoPE",
     .what = "The norms of q and k follow the rotation.",
     .seen = "", .shows = Shows::kSecondToken,
     .needs = "norms of q or k in layers that rotate",
     .how = "every layer; hidden where the norms' weights are equal", .edits = fault_edits::QkNormAfterRope},
    {.id = "qk-norm-scope", .number = "", .name = "q and k normed over the wrong span",
     .what = "Each head by itself instead of the whole projection, or the reverse.",
     .seen = "", .shows = Shows::kSecondToken,
     .needs = "norms of q or k",
     .how = "every layer", .edits = fault_edits::QkNormScopeFlipped},
    {.id = "attention-bias-dropped", .number = "", .name = "bias of q, k, v dropped",
     .what = "The biases of the attention's projections are left out.",
     .seen = "Qwen2 ports", .shows = Shows::kAnywhere,
     .needs = "biases of q, k, v or o",
     .how = "every layer", .edits = fault_edits::QkvBiasDropped},
    {.id = "mlp-bias-dropped", .number = "", .name = "bias of the MLP dropped",
     .what = "The biases of the MLP's projections are left out.",
     .seen = "mobius (Llama with mlp_bias)", .shows = Shows::kAnywhere,
     .needs = "biases of the MLP",
     .how = "every layer", .edits = fault_edits::MlpBiasDropped},
    {.id = "sinks-missing", .number = "", .name = "attention sinks missing",
     .what = "The learned logit of each head does not join the softmax.",
     .seen = "gpt-oss ports", .shows = Shows::kAnywhere,
     .needs = "attention sinks",
     .how = "every layer, from the first token", .edits = fault_edits::SinksMissing},
    {.id = "kv-heads-tiled", .number = "", .name = "KV heads repeated in the wrong order",
     .what = "Query head h reads kv head h % kv_heads: `repeat` for `repeat_interleave`.",
     .seen = "", .shows = Shows::kAnywhere,
     .needs = "grouped query attention (more than one key-value head, and fewer than query heads)",
     .how = "every layer, garbage", .edits = fault_edits::KvHeadsTiled},
    {.id = "rope-theta-default", .number = "", .name = "default RoPE theta",
     .what = "The base is 10000 (or 500000) whatever the checkpoint says.",
     .seen = "", .shows = Shows::kSecondToken,
     .needs = "RoPE whose base is not the default",
     .how = "grows with position", .edits = fault_edits::DefaultTheta},
    {.id = "final-norm-skipped", .number = "", .name = "final norm skipped",
     .what = "The head reads the residual stream as it is.",
     .seen = "", .shows = Shows::kAnywhere,
     .needs = "a head without a bias (with one, no edit expresses this)",
     .how = "logits only; layers exact", .edits = fault_edits::FinalNormSkipped},
    {.id = "experts-off-by-one", .number = "", .name = "one expert more or fewer",
     .what = "Top-k is off by one.",
     .seen = "", .shows = Shows::kAnywhere,
     .needs = "experts of which another number can be chosen",
     .how = "layers of experts", .edits = fault_edits::ExpertsOffByOne},
    {.id = "positions-from-one", .number = "", .name = "learned positions begin at 1",
     .what = "The first token has position 1.",
     .seen = "", .shows = Shows::kAnywhere,
     .needs = "learned positions",
     .how = "from the first token", .edits = fault_edits::PositionsFromOne},
    {.id = "qkv-order", .number = "", .name = "fused q, k, v split in the wrong order",
     .what = "Two of the three change places.",
     .seen = "GPT-2 ports (c_attn)", .shows = Shows::kAnywhere,
     .needs = "in every layer as many key-value heads as query heads, with the same biases",
     .how = "every layer, garbage", .edits = fault_edits::QkvOrder},
    {.id = "conv1d-not-transposed", .number = "", .name = "Conv1D taken as Linear",
     .what = "Matrices that are stored [inputs, outputs] are read as [outputs, inputs].",
     .seen = "GPT-2 ports", .shows = Shows::kAnywhere,
     .needs = "learned positions (Conv1D is GPT-2's)",
     .how = "every layer, garbage", .edits = fault_edits::NotTransposed},
    {.id = "mask-fill", .number = "", .name = "masked scores are -1e4",
     .what = "A masked position gets a finite score instead of -inf.",
     .seen = "", .shows = Shows::kSecondToken,
     .needs = "attention",
     .how = "only where every visible score is below -1e4", .edits = fault_edits::MaskFill},
    {.id = "kv-cache-16-bit", .number = "", .name = "16-bit key-value cache",
     .what = "Keys and values are rounded to fp16 or bf16.",
     .seen = "", .precision = true, .shows = Shows::kSecondToken,
     .needs = "attention",
     .how = "noise of 16 bits, coherent text", .edits = fault_edits::SixteenBitCache},
};

constexpr NegativeControl kControls[] = {
    {.id = "same-router", .name = "top-k then softmax, for softmax, top-k and renormalize",
     .what = "Both give softmax over the chosen logits (Mixtral).", .edits = fault_edits::SameRouter},
    {.id = "other-row-order", .name = "gate and up rows in another order",
     .what = "The rows of gate and up are reversed, and so are the columns of down.", .edits = fault_edits::OtherRowOrder},
    {.id = "scale-in-weights", .name = "attention scale folded into q",
     .what = "q's weights and bias hold the scale of the scores, which is then 1.", .edits = fault_edits::ScaleInWeights},
};
// clang-format on

// The narrowest window of the model, or of a window that a fault invents (WindowWhereNone).
int64_t NarrowestWindow(const ModelSpec& spec) {
  int64_t narrowest = 0;
  for (const LayerSpec& layer : spec.layers)
    if (const auto* a = std::get_if<AttentionSpec>(&layer.mixer); a != nullptr && a->sliding_window)
      narrowest = narrowest == 0 ? *a->sliding_window : std::min(narrowest, *a->sliding_window);
  return narrowest != 0 ? narrowest : InventedWindow(spec);
}

int64_t OriginalLength(const ModelSpec& spec) {
  int64_t original = 0;
  for (const LayerSpec& layer : spec.layers) {
    const RopeSpec* rope = FindRope(layer);
    if (rope == nullptr || !rope->scaling) continue;
    if (const auto* longrope = std::get_if<LongRopeScaling>(&*rope->scaling))
      original = std::max(original, longrope->original_max_position_embeddings);
    if (const auto* dynamic = std::get_if<DynamicScaling>(&*rope->scaling))
      original = std::max(original, dynamic->original_max_position_embeddings);
  }
  return original;
}

std::string ShowsText(Shows shows) {
  switch (shows) {
    case Shows::kAnywhere:
      return "1 token";
    case Shows::kSecondToken:
      return "2 tokens";
    case Shows::kPastWindow:
      return "past the window";
    case Shows::kPastOriginal:
      return "2 tokens, or past the original context";
    case Shows::kSecondCall:
      return "a second call";
    case Shows::kSecondCallWindow:
      return "a second call past the window";
  }
  return "";
}

}  // namespace

std::span<const Fault> KnownFaults() { return kFaults; }

const Fault* FindFault(std::string_view id) {
  const auto* found = std::ranges::find(kFaults, id, &Fault::id);
  return found == std::end(kFaults) ? nullptr : found;
}

std::span<const NegativeControl> NegativeControls() { return kControls; }

int64_t ShortestPrompt(const Fault& fault, const ModelSpec& spec) {
  switch (fault.shows) {
    case Shows::kAnywhere:
    case Shows::kSecondCall:
      return 1;
    case Shows::kSecondToken:
      return 2;
    case Shows::kPastWindow:  // a window that is one wider shows one later
    case Shows::kSecondCallWindow:
      return NarrowestWindow(spec) + 2;
    case Shows::kPastOriginal:
      return std::max<int64_t>(OriginalLength(spec) + 1, 2);
  }
  return 1;
}

std::string FaultsPage() {
  std::string out = fmt::format(
      "# Known faults\n\n"
      "`lockstep inspect --faults > docs/faults.md` writes this page from the table in "
      "`src/faults/catalog.cc`; a test fails when it is old. [adding/fault.md](adding/fault.md) "
      "says how to add one.\n\n"
      "Each of the {} rows is a mistake that real programs make when they port a model; where a "
      "public report of it is known, it is named. Each is data: edits of a model's spec, of "
      "its "
      "run or of its weights, which the reference can compute. `--edit` takes such an edit as "
      "text.\n\n"
      "| id | what is wrong | seen in | shows | least prompt |\n|---|---|---|---|---|\n",
      std::size(kFaults));
  for (const Fault& fault : kFaults)
    out += fmt::format("| `{}`{} | **{}.** {}{} | {} | {} | {} |\n", fault.id,
                       fault.number.empty() ? "" : fmt::format(" ({})", fault.number), fault.name,
                       fault.what, fault.precision ? " (Precision, no mistake.)" : "",
                       fault.seen.empty() ? "–" : fault.seen, fault.how, ShowsText(fault.shows));
  out +=
      "\n## What must be found to be no fault\n\n"
      "Another thread count, fp64 for fp32 and another packing of the same weights change no more "
      "than roundings; neither do these edits:\n\n| id | what |\n|---|---|\n";
  for (const NegativeControl& control : kControls)
    out += fmt::format("| `{}` | **{}.** {} |\n", control.id, control.name, control.what);
  out +=
      "\n## What is no edit\n\n"
      "A missing or doubled BOS and a changed template give other ids: the tokens are compared "
      "first. A fully masked row that gives NaN, int8 activations, penalties under greedy search "
      "and configuration keys that nothing reads are checked where they arise.\n";
  return out;
}

}  // namespace lockstep

// The table of `tokenizer.ggml.pre`. The names are llama.cpp's (llama-vocab.cpp); the patterns are
// those of the models' own tokenizer.json, which llama.cpp rewrites only because its regex engine
// is smaller.
#include "tokenizer/gguf_tokenizer.h"

namespace lockstep {
namespace {

using P = const std::string_view;

#define LS_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LS_ENDINGS R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
#define LS_PUNCTUATION R"( ?[^\s\p{L}\p{N}]+[\r\n]*|)"
#define LS_PUNCTUATION_SLASH R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|)"
#define LS_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define LS_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define LS_BEFORE R"([^\r\n\p{L}\p{N}]?)"
#define LS_CASED(contraction)                                                         \
  LS_BEFORE LS_UPPER "*" LS_LOWER "+" contraction "|" LS_BEFORE LS_UPPER "+" LS_LOWER \
                     "*" contraction "|"

P kGpt2[] = {kGpt2Pattern};
P kDigitGpt2[] = {R"(\p{N})", kGpt2Pattern};
P kLlama3[] = {LS_CONTRACTIONS
               R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)" LS_PUNCTUATION LS_ENDINGS};
P kQwen2[] = {LS_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)" LS_PUNCTUATION LS_ENDINGS};
P kQwen35[] = {
    LS_CONTRACTIONS
    R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" LS_ENDINGS};
P kGpt4o[] = {LS_CASED(LS_CONTRACTIONS "?") R"(\p{N}{1,3}|)" LS_PUNCTUATION_SLASH LS_ENDINGS};
P kTekken[] = {LS_CASED("") R"(\p{N}|)" LS_PUNCTUATION_SLASH LS_ENDINGS};
P kTinyAya[] = {R"(\d{1,3}(?=(?:\d{3})*\b))",
                LS_CASED(LS_CONTRACTIONS "?") R"(\p{N}{1,3}|)" LS_PUNCTUATION_SLASH LS_ENDINGS};
P kLaguna[] = {R"([^\n]+|[\n]+)",
               LS_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)" LS_PUNCTUATION LS_ENDINGS};
P kDeepseek3[] = {
    R"(\p{N}{1,3})", "[一-龥\u3040-ゟ゠-ヿ]+",
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)re" LS_ENDINGS};
P kDeepseekCoder[] = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", "[一-龥ࠀ-一가-\uD7FF]+",
                      R"(\p{N})"};
P kDeepseekLlm[] = {
    R"([\r\n])",
    // clang-format off
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1F7Dᾀ-ᾴᾶ-ᾼ\u1FBEῂ-ῄῆ-ῌῐ-\u1FD3ῖ-\u1FDBῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212A-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
    // clang-format on
    "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", R"(\s+$)", "[一-龥ࠀ-一가-\uD7FF]+", R"(\p{N}+)"};
P kFalcon[] = {R"re([\p{P}\$\+<=>\^~\|`]+)re", kGpt2Pattern, "[0-9][0-9][0-9]"};
P kDefault[] = {R"re([\p{P}\$\+<=>\^~\|]+)re", kGpt2Pattern, R"(\p{N}+)", "[0-9][0-9][0-9]"};
P kBloom[] = {R"re( ?[^(\s|.,!?…。，、।۔،)]+)re"};
P kViking[] = {R"re( ?[^(\s|.,!?…。，、।۔،)]+)re", R"(\p{N})"};
P kSuperBpe[] = {R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"};
P kBailing[] = {
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"};
P kSeedCoder[] = {LS_CONTRACTIONS
                  R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|)" LS_ENDINGS};
P kExaoneMoe[] = {
    LS_CONTRACTIONS
    R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"};
P kKimi[] = {
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)" LS_CONTRACTIONS
    R"(?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)" LS_CONTRACTIONS
    R"(?|\p{N}{1,3}|)" LS_PUNCTUATION LS_ENDINGS};
P kYoutu[] = {
    "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u3040-"
    "ゟ゠-"
    "ヿ]"
    "+",
    LS_CASED(LS_CONTRACTIONS "?") R"(\p{N}|)" LS_PUNCTUATION_SLASH LS_ENDINGS};

constexpr GgufPreTokenizer kTable[] = {
    {.name = "a.x-4.0", .patterns = kGpt2},
    {.name = "bailingmoe", .patterns = kBailing},
    {.name = "bailingmoe2", .patterns = kBailing},
    {.name = "bloom", .patterns = kBloom},
    {.name = "chatglm-bpe", .patterns = kLlama3},
    {.name = "codeshell", .patterns = kDigitGpt2},
    {.name = "command-r", .patterns = kDigitGpt2, .nfc = true},
    {.name = "dbrx", .patterns = kLlama3},
    {.name = "deepseek-coder", .patterns = kDeepseekCoder},
    {.name = "deepseek-llm", .patterns = kDeepseekLlm},
    {.name = "deepseek-r1-qwen", .patterns = kQwen2, .nfc = true},
    {.name = "deepseek-v3", .patterns = kDeepseek3},
    {.name = "default", .patterns = kDefault},
    {.name = "exaone", .patterns = kDigitGpt2},
    {.name = "exaone-moe", .patterns = kExaoneMoe},
    {.name = "exaone4", .patterns = kGpt2},
    {.name = "falcon", .patterns = kFalcon},
    {.name = "falcon-h1", .patterns = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "falcon3", .patterns = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "gigachat", .patterns = kGpt2},
    {.name = "glm4", .patterns = kLlama3},
    {.name = "gpt-2", .patterns = kGpt2},
    {.name = "gpt-4o", .patterns = kGpt4o},
    {.name = "gpt3-finnish", .patterns = kBloom},
    {.name = "granite-docling", .patterns = kGpt2},
    {.name = "grok-2", .patterns = kQwen2},
    {.name = "hunyuan", .patterns = kQwen2},
    {.name = "hunyuan-dense", .patterns = kDeepseek3},
    {.name = "jais", .patterns = kGpt2},
    {.name = "jina-de", .patterns = kGpt2},
    {.name = "jina-es", .patterns = kGpt2},
    {.name = "jina-v1-en", .patterns = kGpt2},
    {.name = "jina-v2-code", .patterns = kGpt2},
    {.name = "jina-v2-de", .patterns = kGpt2},
    {.name = "jina-v2-es", .patterns = kGpt2},
    {.name = "joyai-llm", .patterns = kDeepseek3},
    {.name = "kanana2", .patterns = kGpt4o},
    {.name = "kimi-k2", .patterns = kKimi},
    {.name = "kormo", .patterns = kQwen2},
    {.name = "laguna", .patterns = kLaguna},
    {.name = "lfm2", .patterns = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "llada-moe", .patterns = kBailing},
    {.name = "llama-bpe", .patterns = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "llama-v3", .patterns = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "llama3", .patterns = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "llama4", .patterns = kGpt4o},
    {.name = "megrez", .patterns = kQwen2},
    {.name = "mellum", .patterns = kGpt2},
    {.name = "midm-2.0", .patterns = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "minerva-7b", .patterns = kDigitGpt2},
    {.name = "minimax-m2", .patterns = kGpt4o},
    {.name = "modern-bert", .patterns = kGpt2, .nfc = true},
    {.name = "mpt", .patterns = kGpt2},
    {.name = "olmo", .patterns = kGpt2},
    {.name = "phi-2", .patterns = kGpt2},
    {.name = "pixtral", .patterns = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "poro-chat", .patterns = kBloom},
    {.name = "qwen2", .patterns = kQwen2, .nfc = true},
    {.name = "qwen35", .patterns = kQwen35, .nfc = true},
    {.name = "refact", .patterns = kDigitGpt2},
    {.name = "roberta-bpe", .patterns = kGpt2},
    {.name = "seed-coder", .patterns = kSeedCoder},
    {.name = "smaug-bpe", .patterns = kLlama3},
    {.name = "smollm", .patterns = kDigitGpt2},
    {.name = "solar-open", .patterns = kQwen2},
    {.name = "stablelm2", .patterns = kQwen2},
    {.name = "starcoder", .patterns = kDigitGpt2},
    {.name = "superbpe", .patterns = kSuperBpe},
    {.name = "tekken", .patterns = kTekken, .ignore_merges = true, .add_bos = true},
    {.name = "tiny_aya", .patterns = kTinyAya},
    {.name = "trillion", .patterns = kGpt2},
    {.name = "viking", .patterns = kViking},
    {.name = "youtu", .patterns = kYoutu, .ignore_merges = true},
};

#undef LS_CONTRACTIONS
#undef LS_ENDINGS
#undef LS_PUNCTUATION
#undef LS_PUNCTUATION_SLASH
#undef LS_LOWER
#undef LS_UPPER
#undef LS_BEFORE
#undef LS_CASED

}  // namespace

std::span<const GgufPreTokenizer> GgufPreTokenizers() { return kTable; }

}  // namespace lockstep

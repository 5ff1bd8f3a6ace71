#include "verify/verify.h"

namespace lockstep {

const std::vector<NamedPrompt>& BuiltInPrompts() {
  static const std::vector<NamedPrompt> kPrompts = {
      {"plain", "Explain in two sentences why the sky looks blue during the day."},
      {"rare",
       "Juxtapose the quixotic bibliophile's sesquipedalian soliloquy with a laconic crepuscular "
       "haiku."},
      {"mixed", "请用 English 解释一下什么是 attention mechanism，并举一个例子。"},
      {"persian1", "سلام! لطفاً دربارهٔ پایتخت ایران یک جملهٔ کوتاه بنویس."},
      {"persian2",
       "می‌خواهم بدانم چرا آسمان آبی است؛ ساده توضیح "
       "بده."},
  };
  return kPrompts;
}

std::vector<NamedPrompt> BuiltInIds(int64_t vocab_size) {
  std::vector<NamedPrompt> prompts;
  uint64_t state = 1;
  for (const int length : {7, 26, 75}) {
    NamedPrompt prompt{.name = fmt::format("{} ids", length)};
    for (int i = 0; i < length; ++i) {
      // Knuth's MMIX generator; the high bits are the good ones.
      state = state * 6364136223846793005u + 1442695040888963407u;
      prompt.ids.push_back(static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocab_size)));
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace lockstep

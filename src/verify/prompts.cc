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

}  // namespace lockstep

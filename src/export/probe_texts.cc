#include "export/probe_texts.h"

#include <string_view>

#include "base/quoted.h"

namespace lockstep {
namespace {

// What tells the pre-tokenizers of gguf_pre_tokenizers.cc apart: digits of several lengths,
// contractions in both cases, punctuation beside letters and newlines, runs of spaces, scripts with
// rules of their own, marks, composed and decomposed letters, code, symbols.
// NOLINTBEGIN(bugprone-suspicious-missing-comma): long texts go on in the next line
constexpr std::string_view kProbes[] = {
    "Hello, world! It's 1234567890 o'clock; we'll SEE, I'M sure they'VE gone.",
    "  two spaces\n\nand\t\ttabs \r\n  \n   trailing   ",
    "3.14159 + 2,718,281.828 = 42% of $1000 (or \u20ac999) #7 @you 2024-11-30T02:15:00Z",
    "def f(x):\n    return {'key': [x**2 for x in range(10)]}  # comment\n\n\nprint(f\"{x!r}\")",
    "\u4eca\u5929\u5929\u6c14\u5f88\u597d\uff0c\u6211\u4eec2024\u5e74\u53bb\u5317\u4eac\u3002\u6771"
    "\u4eac\u30bf\u30ef\u30fc\u306f\u3068\u3066\u3082\u9ad8\u3044\u3067\u3059\uff01",
    "\u0633\u0644\u0627\u0645 \u062f\u0646\u06cc\u0627\u060c \u0627\u0645\u0631\u0648\u0632 "
    "\u0647\u0648\u0627 \u062e\u0648\u0628 \u0627\u0633\u062a. \u06f1\u06f2\u06f3\u06f4 "
    "\u0645\u06cc\u200c\u0631\u0648\u0645",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! "
    "\u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac \u03ba\u03b1\u03b9 "
    "\u05e2\u05d1\u05e8\u05d9\u05ea",
    "caf\u00e9 na\u00efve \u00c5ngstr\u00f6m \u2014 cafe\u0301 nai\u0308ve A\u030angstrom",
    "\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4. \u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 "
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u092e\u0947\u0902 \u0967\u0968\u0969",
    "\U0001F600\U0001F468\u200d\U0001F469\u200d\U0001F467 \u00bd \u2460 \u2164 x\u00b2 "
    "\u2192\u2200\u2203 \u00a9\u00ae\u2122",
    "CamelCaseHTTPServer2Go and snake_case_name, ALLCAPS and mixedCASE's",
    "https://example.org/a/b?c=d&e=f#g ... ??? !!! --- *** \"quoted\" 'single' `code`",
    "a\nb\n\nc \n d\n  e/f\n/g //h\\i",
    "DON'T won't I'd HE'LL they're THEY'RE 's 'S 't",
    "1 12 123 1234 12345 123456 1234567 0x1F 1e-5 v1.2.3",
    "\u00a0nbsp\u2003em\u3000ideographic \u2028line",
    "",
};
// NOLINTEND(bugprone-suspicious-missing-comma)

}  // namespace

size_t NumProbeTexts() { return std::size(kProbes); }

Result<std::string> FirstDifferentProbe(const Tokenizer& wanted, const Tokenizer& found,
                                        EncodeOptions options) {
  for (const std::string_view probe : kProbes) {
    LS_TRY(const auto a, wanted.Encode(probe, options));
    LS_TRY(const auto b, found.Encode(probe, options));
    if (a != b || wanted.Decode(a) != found.Decode(b)) return Quoted(probe.substr(0, 60));
  }
  return std::string();
}

}  // namespace lockstep

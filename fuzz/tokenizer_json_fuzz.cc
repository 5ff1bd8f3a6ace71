// Any bytes as a tokenizer.json: refused in one sentence or usable, never a crash. A usable
// tokenizer encodes and decodes a little text, whole and as a stream.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "tokenizer/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = lockstep::LoadTokenizerJson(bytes, "tokenizer.json");
  if (!tokenizer) {
    if (tokenizer.error().message.find("tokenizer.json") != 0) std::abort();
    return 0;
  }
  // A fixed text, then the file itself where it is text: it contains the tokens.
  for (const std::string_view text :
       {std::string_view("It's 12\n  \u00e9\u0301 \u65e5\u672c <s>ab</s>\U0001F600 "),
        bytes.substr(0, 400)}) {
    const auto encoding = tokenizer->EncodeWithOffsets(text);
    const auto ids = tokenizer->Encode(text, {.parse_special = size % 2 == 0});
    if (!encoding || !ids) continue;
    if (encoding->ids.size() != encoding->offsets.size()) std::abort();
    lockstep::StreamDecoder stream(*tokenizer);
    std::string streamed;
    for (const int32_t id : *ids) {
      const std::string chunk = stream.Push(id);
      if (lockstep::FindUtf8Fault(chunk)) std::abort();
      streamed += chunk;
    }
    streamed += stream.Flush();
    if (streamed != tokenizer->Decode(*ids)) std::abort();
    tokenizer->Decode(*ids, true);
  }
  return 0;
}

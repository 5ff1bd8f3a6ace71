// Any bytes are a chat template: parsing and rendering must end, in bounded time and memory, with
// text or an error. Small limits make the bounds themselves part of what is tested.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/json.h"
#include "jinja/jinja.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const lockstep::Json variables = lockstep::Json::parse(R"({
    "messages": [{"role": "user", "content": "hi \u00e9"}, {"role": "assistant", "content": [1, null]}],
    "tools": [{"name": "f", "parameters": {"x": {"type": "integer", "default": 1.5}}}],
    "n": 7, "s": "Hello World", "l": [3, 1, 2], "d": {"b": 1, "a": {"x": [1, 2]}}, "t": true})");
  const auto parsed =
      lockstep::jinja::Template::Parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!parsed) return 0;
  const lockstep::jinja::Limits limits = {.max_output_bytes = 1 << 16,
                                          .max_memory_bytes = 4 << 20,
                                          .max_steps = 20000,
                                          .max_depth = 50};
  const auto rendered = parsed->Render(variables, {}, limits);
  if (rendered && rendered->text.size() > limits.max_output_bytes) __builtin_trap();
  return 0;
}

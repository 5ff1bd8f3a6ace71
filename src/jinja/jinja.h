// Jinja templates as chat models carry them: the language of Jinja2 3.1.6 as transformers 5.24
// configures it. Source text -> Template (parsed once) -> text, for one set of variables. Untrusted
// templates are safe to render: the sandbox of Jinja2 is kept, and time, memory, output and nesting
// are bounded by Limits. Reading order: lexer.h, parser.h, ast.h, value.h,
// eval.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "jinja/error.h"
#include "jinja/time.h"

namespace lockstep::jinja {

struct Tree;

struct Limits {
  size_t max_output_bytes = 16u << 20;
  size_t max_memory_bytes = 256u << 20;  // of all values alive at one moment
  uint64_t max_steps = 10'000'000;       // nodes, items, and text by Work (value.h)
  int max_depth = 200;                   // macros and recursive loops inside each other
};

struct Rendered {
  std::string text;
  // [start, end) in code points of `text`: what {% generation %} blocks wrote.
  std::vector<std::pair<size_t, size_t>> generation_spans;
};

class Template {
 public:
  static Expected<Template> Parse(std::string_view source);

  // `variables` is an object; a name it lacks is undefined. `clock` is what strftime_now tells.
  Expected<Rendered> Render(const Json& variables, const Clock& clock,
                            const Limits& limits = {}) const;

 private:
  explicit Template(std::shared_ptr<const Tree> tree) : tree_(std::move(tree)) {}
  std::shared_ptr<const Tree> tree_;
};

}  // namespace lockstep::jinja

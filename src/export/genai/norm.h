// Norms, and the residual stream that most of them read.
#pragma once

#include <optional>
#include <string>

#include "export/genai/builder.h"

namespace lockstep::genai {

// The norm of groups of `size` elements, which are x's last dimension. `name` is of the node; the
// weight is that of `role`.
std::string Normed(GraphBuilder& b, const std::string& name, const std::string& x,
                   const NormSpec& norm, Role role, int layer, int64_t size);

// The residual stream: a value, or a sum that is not made yet, because the norm that reads it may
// make it on the way (SkipSimplifiedLayerNormalization).
class Stream {
 public:
  explicit Stream(std::string value) : value_(std::move(value)) {}

  // The stream's value; makes the sum.
  const std::string& Value(GraphBuilder& b);
  // x + y, where y came of what `name` names.
  void Add(GraphBuilder& b, std::string y, std::string name);
  // The norm of the stream; x itself where there is none.
  std::string Normed(GraphBuilder& b, const std::string& name, const std::optional<NormSpec>& norm,
                     Role role, int layer);

 private:
  std::string value_, pending_, pending_name_;
};

}  // namespace lockstep::genai

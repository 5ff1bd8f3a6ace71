// ValueTypes: the type of each value of an ONNX graph as it follows from the stored tensors, the
// graph's inputs and its casts. A file need not say it.
#pragma once

#include <map>
#include <string_view>

#include "formats/onnx.h"

namespace lockstep {

class ValueTypes {
 public:
  // The model must outlive it.
  explicit ValueTypes(const OnnxModel& model) : model_(model) {}

  // kUndefined: not known.
  OnnxType Of(std::string_view value);

 private:
  OnnxType Stored(std::string_view value) const;
  OnnxType Made(const OnnxNode& node, std::string_view value) const;

  const OnnxModel& model_;
  std::map<std::string_view, OnnxType> known_;
};

}  // namespace lockstep

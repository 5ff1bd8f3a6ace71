// ColumnImportance: how much the columns of each matrix count when codes are chosen: the mean
// square of what they multiply. Measured on some text by whoever calls an exporter
// (cli/calibration.h), read by the exporters, which hand it to quant/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "model/weight_view.h"

namespace lockstep {

class ColumnImportance {
 public:
  // A matrix is known by where it is stored: several of a file's may share a tensor.
  static std::pair<const std::byte*, int64_t> KeyOf(const WeightView& view) {
    return {view.data, view.offset};
  }
  std::vector<float>& of(const WeightView& view) { return columns_[KeyOf(view)]; }
  // nullptr: nothing is known of it.
  const std::vector<float>* Find(const WeightView& view) const {
    const auto at = columns_.find(KeyOf(view));
    return at == columns_.end() ? nullptr : &at->second;
  }
  int64_t tokens = 0;  // it was measured on

 private:
  std::map<std::pair<const std::byte*, int64_t>, std::vector<float>> columns_;
};

}  // namespace lockstep

// Calibration: what a model's matrices multiply when it reads a text, for exporters that choose
// codes by it. Measured by whoever calls an exporter (cli/calibration.h), read when a matrix is
// written, handed to quant/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "export/matrix_source.h"
#include "model/weight_view.h"
#include "quant/error_feedback.h"

namespace lockstep {

// A matrix is known by where it is stored: several of a file's may share a tensor.
using MatrixKey = std::pair<const std::byte*, int64_t>;
inline MatrixKey KeyOf(const WeightView& view) { return {view.data, view.offset}; }

// Of one matrix.
struct InputStatistics {
  std::vector<float> squares;  // of each column, summed; empty: it was never multiplied
  std::shared_ptr<const ErrorFeedback> feedback;  // nullptr: errors are not made good
};

class Calibration {
 public:
  virtual ~Calibration() = default;
  // Asked once for each matrix that is coded, in the order of the layers. An interrupt is an error.
  virtual Result<InputStatistics> Of(const WeightView& view) = 0;
  // What the codes of a matrix stand for, `values(row, out)`; what is asked next may see it.
  virtual void Chosen(const MatrixSource& matrix,
                      const std::function<void(int64_t row, float* out)>& values) = 0;
  virtual int64_t tokens() const = 0;  // that were read
};

}  // namespace lockstep

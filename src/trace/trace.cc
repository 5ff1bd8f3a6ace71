#include "trace/trace.h"

#include <algorithm>

namespace lockstep {

int64_t TraceTensor::elements() const {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

int64_t TraceTensor::num_rows() const {
  const int64_t cols = row_length();
  return cols == 0 ? 0 : elements() / cols;
}

std::vector<double> TraceTensor::Row(int64_t row) const {
  LS_CHECK(row >= 0 && row < num_rows(), "row {} of {}", row, num_rows());
  const int64_t cols = row_length();
  return std::visit(
      [&](const auto& all) {
        const auto first = all.begin() + row * cols;
        return std::vector<double>(first, first + cols);
      },
      values);
}

int64_t PromptTrace::vocab_size() const {
  if (logits) return logits->row_length();
  return steps.empty() ? 0 : steps.begin()->second.row_length();
}

std::vector<double> PromptTrace::StepLogits(int64_t step) const {
  if (const auto found = steps.find(step); found != steps.end()) return found->second.Row(0);
  if (step == 0 && logits) return logits->Row(logits->num_rows() - 1);
  return {};
}

}  // namespace lockstep

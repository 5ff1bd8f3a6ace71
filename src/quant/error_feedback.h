// ErrorFeedback: how the error of one column's code is made good by the columns behind it, for a
// matrix whose inputs are known (GPTQ: Frantar et al. 2022, arXiv 2210.17323). Made of the inputs'
// second moments by whoever saw them, read by QuantizeRows.
//
// Codes q of a row w are to make (w - q) H (w - q)^T small, H = sum x x^T. With H = R R^T, R upper
// triangular, that is the sum over i of
//   R_ii^2 (t_i - q_i)^2,   t_i = w_i + sum over j < i of (R_ji / R_ii) (w_j - q_j)
// so that column after column q_i is the code nearest to its target t_i. GPTQ reaches the same
// codes by updating the weights behind with the rows of the Cholesky factor of the inverse of H,
// which is R^-1; this way nothing is inverted.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "quant/grid.h"

namespace lockstep {

struct FeedbackOptions {
  double damping = 0.01;  // of the mean of the diagonal, added to it
  // Elements off the diagonal count so much less: few inputs show correlations that others lack.
  double shrinkage = 0;
};

class ErrorFeedback {
 public:
  // moments [cols, cols]: sum x x^T, of which the elements on and above the diagonal are read.
  // Absent where it is no such sum (not finite, or all zeros).
  static std::optional<ErrorFeedback> Of(std::vector<float> moments, int64_t cols,
                                         const FeedbackOptions& options, ThreadPool* pool);

  int64_t cols() const { return cols_; }
  // R_ii^2, their mean 1: what the square of t_i - q_i costs.
  std::span<const float> costs() const { return costs_; }
  // R_ji / R_ii at [j, i], i > j; zeros else.
  std::span<const float> row(size_t j) const {
    return std::span(ratios_).subspan(j * static_cast<size_t>(cols_), static_cast<size_t>(cols_));
  }

 private:
  int64_t cols_ = 0;
  std::vector<float> ratios_, costs_;
};

// Rows that are coded together.
inline constexpr size_t kFeedbackRows = 8;

// Codes of up to kFeedbackRows rows x [count, cols] in blocks of `block` elements: codes
// [count, cols], grids [count, blocks]. A block's scale is the best for its targets. No element is
// moved by more than `most` times its block's largest, unless the nearest code is further.
// Columns past feedback.cols() are rounded as they are. A scale that its type cannot hold comes out
// infinite.
void CodeWithFeedback(std::span<const float> x, size_t count, size_t cols, size_t block,
                      const GridSpec& spec, const ErrorFeedback& feedback, float most,
                      std::span<uint8_t> codes, std::span<Grid> grids);

}  // namespace lockstep

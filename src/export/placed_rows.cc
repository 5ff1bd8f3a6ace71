#include "export/placed_rows.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "export/matrix_source.h"

namespace lockstep {
namespace {

int64_t ElementsOf(const PlacedTensor& tensor) {
  return std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

Status FillRowsOf(const PlacedTensor& tensor, const Weights& weights, const TensorType& type,
                  int64_t first, int64_t count, ThreadPool& pool, std::byte* out) {
  const int64_t row_bytes = tensor.row_elements() / type.block_elements * type.block_bytes;
  const int64_t pieces = std::min<int64_t>(count, int64_t{pool.num_threads()} * 8);
  std::vector<Status> results(static_cast<size_t>(pieces));
  pool.For(static_cast<size_t>(pieces), [&](size_t piece) {
    const int64_t begin = count * static_cast<int64_t>(piece) / pieces;
    const int64_t end = count * (static_cast<int64_t>(piece) + 1) / pieces;
    results[piece] =
        FillPlacedRows(tensor, weights, type, first + begin, end - begin, out + begin * row_bytes);
  });
  for (Status& result : results) LS_RETURN_IF_ERROR(std::move(result));
  const bool last = (first + count) * tensor.row_elements() == ElementsOf(tensor);
  for (const PlacedWeight& weight : tensor.weights)
    if (last)
      ForgetPages(weights, {.views = {&weights.Get(weight.id.role, weight.id.layer, weight.id.part,
                                                   weight.id.expert)}});
  return {};
}

}  // namespace lockstep

#include "export/read_again.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "arch/spec_facts.h"
#include "export/matrix_source.h"

namespace lockstep {
namespace {

// The sums behind a relative error.
struct Compared {
  int64_t exact = 0, rounded = 0;
  double error = 0, magnitude = 0;
};

Result<Compared> CompareWeights(const Model& model, const Model& written, ThreadPool& pool) {
  std::vector<std::pair<const WeightView*, const WeightView*>> pairs;
  for (const auto& [id, view] : model.weights.all()) {
    const WeightView* other = written.weights.Find(id);
    if (other == nullptr) return InputError("{} is not in the written file", ToString(id));
    pairs.emplace_back(&view, other);
  }
  std::vector<Compared> sums(pairs.size());
  pool.For(pairs.size(), [&](size_t i) {
    const auto& [a, b] = pairs[i];
    const int64_t step = std::max<int64_t>(1, (int64_t{1} << 18) / std::max<int64_t>(a->cols, 1));
    const auto size = static_cast<size_t>(std::min(step, a->rows) * a->cols);
    std::vector<float> x(size), y(size);
    for (int64_t r = 0; r < a->rows; r += step) {
      const int64_t n = std::min(step, a->rows - r);
      a->ReadRows(r, n, x.data(), a->cols);
      b->ReadRows(r, n, y.data(), a->cols);
      for (size_t k = 0; k < static_cast<size_t>(n * a->cols); ++k) {
        if (std::bit_cast<uint32_t>(x[k]) == std::bit_cast<uint32_t>(y[k])) {
          ++sums[i].exact;
          continue;
        }
        ++sums[i].rounded;
        sums[i].error += (double{x[k]} - y[k]) * (double{x[k]} - y[k]);
        sums[i].magnitude += double{x[k]} * x[k];
      }
    }
    ForgetPages(model.weights, {.views = {a}});
    ForgetPages(written.weights, {.views = {b}});
  });
  Compared total;
  for (const Compared& one : sums) {
    total.exact += one.exact;
    total.rounded += one.rounded;
    total.error += one.error;
    total.magnitude += one.magnitude;
  }
  return total;
}

}  // namespace

Status ReadAgain(const Model& model, const ModelSpec& facts, const std::filesystem::path& written,
                 ThreadPool& pool, CheckpointExportReport& report) {
  LS_TRY(const Model again, LoadModel(written));
  if (const auto differences = FactsThatDiffer(facts, again.spec); !differences.empty())
    return InputError("{}: what was written states other facts: {}", written.string(),
                      fmt::join(differences, "; "));
  LS_TRY(const Compared compared, CompareWeights(model, again, pool));
  report.exact_weights = compared.exact;
  report.rounded_weights = compared.rounded;
  if (compared.magnitude > 0)
    report.relative_error = std::sqrt(compared.error / compared.magnitude);
  return {};
}

}  // namespace lockstep

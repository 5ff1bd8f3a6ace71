#include "export/matrix_source.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace lockstep {
namespace {

// Rows that one thread converts together: a panel whose transposed columns fill cache lines.
constexpr int64_t kPanel = 32;
// Bytes of rows in memory at a time.
constexpr int64_t kBlockBytes = int64_t{32} << 20;

void Append(std::vector<const WeightView*>& to, const std::vector<const WeightView*>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

MatrixSource SourceOf(const WeightView& view) {
  return {view.rows,
          view.cols,
          [&view](int64_t first, int64_t count, float* out) {
            view.ReadRows(first, count, out, view.cols);
          },
          {&view}};
}

MatrixSource Zeros(int64_t rows, int64_t cols) {
  return {rows,
          cols,
          [cols](int64_t, int64_t count, float* out) { std::fill_n(out, count * cols, 0.0f); },
          {}};
}

MatrixSource Stacked(std::vector<MatrixSource> parts) {
  MatrixSource out{.cols = parts.front().cols};
  for (const MatrixSource& part : parts) {
    LS_CHECK(part.cols == out.cols, "{} and {} columns", part.cols, out.cols);
    out.rows += part.rows;
    Append(out.views, part.views);
  }
  // Experts are many: the part that holds a row is looked up.
  std::vector<int64_t> begins;
  int64_t rows = 0;
  for (const MatrixSource& part : parts) begins.push_back(std::exchange(rows, rows + part.rows));
  out.read = [parts = std::move(parts), begins = std::move(begins)](int64_t first, int64_t count,
                                                                    float* to) {
    auto i = static_cast<size_t>(std::upper_bound(begins.begin(), begins.end(), first) -
                                 begins.begin() - 1);
    while (count > 0) {
      const int64_t at = first - begins[i];
      const int64_t n = std::min(count, parts[i].rows - at);
      if (n > 0) parts[i].read(at, n, to);
      to += n * parts[i].cols;
      first += n;
      count -= n;
      ++i;
    }
  };
  return out;
}

MatrixSource InTurn(MatrixSource a, MatrixSource b) {
  LS_CHECK(a.rows == b.rows && a.cols == b.cols, "{}x{} and {}x{}", a.rows, a.cols, b.rows, b.cols);
  MatrixSource out{.rows = 2 * a.rows, .cols = a.cols, .views = a.views};
  Append(out.views, b.views);
  out.read = [a = std::move(a), b = std::move(b)](int64_t first, int64_t count, float* to) {
    for (int64_t r = first; r < first + count; ++r, to += a.cols)
      (r % 2 == 0 ? a : b).read(r / 2, 1, to);
  };
  return out;
}

MatrixSource Mapped(MatrixSource source, std::function<float(float)> f) {
  MatrixSource out{.rows = source.rows, .cols = source.cols, .views = source.views};
  out.read = [source = std::move(source), f = std::move(f)](int64_t first, int64_t count,
                                                            float* to) {
    source.read(first, count, to);
    std::transform(to, to + count * source.cols, to, f);
  };
  return out;
}

Status WriteRows(const MatrixSource& source, ThreadPool& pool, DataFile& file) {
  const int64_t row_bytes = std::max<int64_t>(1, source.cols * 4);
  const int64_t block = std::clamp<int64_t>(kBlockBytes / row_bytes, 1, source.rows);
  std::vector<float> rows(static_cast<size_t>(block * source.cols));
  for (int64_t first = 0; first < source.rows; first += block) {
    const int64_t count = std::min(block, source.rows - first);
    pool.For(static_cast<size_t>((count + kPanel - 1) / kPanel), [&](size_t panel) {
      const int64_t begin = static_cast<int64_t>(panel) * kPanel;
      source.read(first + begin, std::min(kPanel, count - begin),
                  rows.data() + begin * source.cols);
    });
    LS_RETURN_IF_ERROR(file.AppendValues(
        std::span<const float>(rows).first(static_cast<size_t>(count * source.cols))));
  }
  return {};
}

Status WriteTransposed(const MatrixSource& source, ThreadPool& pool, DataFile& file) {
  const int64_t rows = source.rows, cols = source.cols;
  // Not value-initialized: every element is written.
  const std::unique_ptr<float[]> out(new float[static_cast<size_t>(rows * cols)]);
  pool.For(static_cast<size_t>((rows + kPanel - 1) / kPanel), [&](size_t panel) {
    const int64_t first = static_cast<int64_t>(panel) * kPanel;
    const int64_t count = std::min(kPanel, rows - first);
    std::vector<float> in(static_cast<size_t>(count * cols));
    source.read(first, count, in.data());
    for (int64_t c = 0; c < cols; ++c)
      for (int64_t r = 0; r < count; ++r)
        out[static_cast<size_t>(c * rows + first + r)] = in[static_cast<size_t>(r * cols + c)];
  });
  return file.AppendValues(std::span<const float>(out.get(), static_cast<size_t>(rows * cols)));
}

void ForgetPages(const Weights& weights, const MatrixSource& source) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (const WeightView* view : source.views) {
    if (view->type == nullptr || view->rows < 1 || view->cols < 1) continue;
    const int64_t last =
        view->offset + (view->rows - 1) * view->row_stride + (view->cols - 1) * view->col_stride;
    const auto place = [&](int64_t element) {
      return view->data + element / view->type->block_elements * view->type->block_bytes;
    };
    const std::byte *begin = place(view->offset), *end = place(last);
    for (const auto& file : weights.files()) {
      const std::byte* map = file->bytes().data();
      // Memory that is no file's would lose its values.
      if (begin < map || end > map + file->bytes().size()) continue;
      const uintptr_t from = (reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page;
      const uintptr_t to = reinterpret_cast<uintptr_t>(end) / page * page;
      if (from < to) madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
    }
  }
}

}  // namespace lockstep

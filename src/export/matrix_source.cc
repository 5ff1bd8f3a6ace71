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
  MatrixSource out{view.rows,
                   view.cols,
                   [&view](int64_t first, int64_t count, float* to) {
                     view.ReadRows(first, count, to, view.cols);
                   },
                   {&view}};
  out.origin = [&view](int64_t row) { return std::pair(&view, row); };
  if (!view.type->plain() && view.col_stride == 1 && view.addend == 0) {
    out.stored = view.type;
    out.row_bytes = [&view](int64_t row) { return view.RowBytes(row); };
  }
  return out;
}

MatrixSource Zeros(int64_t rows, int64_t cols) {
  MatrixSource out{
      rows,
      cols,
      [cols](int64_t, int64_t count, float* to) { std::fill_n(to, count * cols, 0.0f); },
      {}};
  out.origin = [](int64_t) { return std::pair<const WeightView*, int64_t>(nullptr, 0); };
  return out;
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
  if (std::ranges::all_of(parts, [&](const MatrixSource& part) {
        return part.stored != nullptr && part.stored == parts[0].stored;
      })) {
    out.stored = parts[0].stored;
    out.row_bytes = [parts, begins](int64_t row) {
      const auto i = static_cast<size_t>(std::upper_bound(begins.begin(), begins.end(), row) -
                                         begins.begin() - 1);
      return parts[i].row_bytes(row - begins[i]);
    };
  }
  out.origin = [parts, begins](int64_t row) {
    const auto i = static_cast<size_t>(std::upper_bound(begins.begin(), begins.end(), row) -
                                       begins.begin() - 1);
    return parts[i].origin(row - begins[i]);
  };
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
  if (a.stored != nullptr && a.stored == b.stored) {
    out.stored = a.stored;
    out.row_bytes = [a, b](int64_t row) { return (row % 2 == 0 ? a : b).row_bytes(row / 2); };
  }
  out.origin = [a, b](int64_t row) { return (row % 2 == 0 ? a : b).origin(row / 2); };
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

namespace {

// Rows [first, first + count) of the source to `use`, panel by panel, on all threads.
void ReadBlock(ThreadPool& pool, int64_t first, int64_t count,
               const std::function<void(int64_t begin, int64_t n)>& use) {
  pool.For(static_cast<size_t>((count + kPanel - 1) / kPanel), [&](size_t panel) {
    const int64_t begin = static_cast<int64_t>(panel) * kPanel;
    use(first + begin, std::min(kPanel, count - begin));
  });
}

int64_t RowsOfBlock(const MatrixSource& source) {
  const int64_t rows = kBlockBytes / std::max<int64_t>(1, source.cols * 4);
  return std::clamp<int64_t>(rows, kPanel, std::max(kPanel, source.rows));
}

}  // namespace

Status WriteRows(const MatrixSource& source, const Weights& weights, ThreadPool& pool,
                 DataFile& file) {
  const int64_t block = RowsOfBlock(source);
  std::vector<float> rows(static_cast<size_t>(std::min(block, source.rows) * source.cols));
  for (int64_t first = 0; first < source.rows; first += block) {
    const int64_t count = std::min(block, source.rows - first);
    ReadBlock(pool, first, count, [&](int64_t begin, int64_t n) {
      source.read(begin, n, rows.data() + (begin - first) * source.cols);
    });
    ForgetPages(weights, source);
    LS_RETURN_IF_ERROR(file.AppendValues(
        std::span<const float>(rows).first(static_cast<size_t>(count * source.cols))));
  }
  return {};
}

Status WriteTransposed(const MatrixSource& source, const Weights& weights, ThreadPool& pool,
                       DataFile& file) {
  const int64_t rows = source.rows, cols = source.cols, block = RowsOfBlock(source);
  // Not value-initialized: every element is written.
  const std::unique_ptr<float[]> out(new float[static_cast<size_t>(rows * cols)]);
  for (int64_t first = 0; first < rows; first += block) {
    ReadBlock(pool, first, std::min(block, rows - first), [&](int64_t begin, int64_t n) {
      std::vector<float> in(static_cast<size_t>(n * cols));
      source.read(begin, n, in.data());
      for (int64_t c = 0; c < cols; ++c)
        for (int64_t r = 0; r < n; ++r)
          out[static_cast<size_t>(c * rows + begin + r)] = in[static_cast<size_t>(r * cols + c)];
    });
    ForgetPages(weights, source);
  }
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

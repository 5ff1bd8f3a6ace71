// MatrixSource: a matrix as an exported graph needs it, put together from the weights of a model
// (one, several below each other, rows in turn, padded), read by rows when it is written and never
// before. Rows are outputs, columns inputs, as everywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "export/data_file.h"
#include "model/weights.h"

namespace lockstep {

struct MatrixSource {
  int64_t rows = 0, cols = 0;
  // Rows [first, first + count) to out [count, cols]. Called by several threads at once.
  std::function<void(int64_t first, int64_t count, float* out)> read;
  std::vector<const WeightView*> views;  // what it reads
  // Where its rows are stored, all in one type of codes; empty where they are not.
  const TensorType* stored = nullptr;
  std::function<const std::byte*(int64_t row)> row_bytes;
  // Which row of which view a row is; of none ({nullptr, 0}) where it is filled in.
  std::function<std::pair<const WeightView*, int64_t>(int64_t row)> origin;
};

// The views must outlive the sources.
MatrixSource SourceOf(const WeightView& view);
MatrixSource Zeros(int64_t rows, int64_t cols);
// Below each other; all have the same number of columns.
MatrixSource Stacked(std::vector<MatrixSource> parts);
// Row 0 of a, row 0 of b, row 1 of a, ...
MatrixSource InTurn(MatrixSource a, MatrixSource b);
// A vector's elements changed one by one: f of each.
MatrixSource Mapped(MatrixSource source, std::function<float(float)> f);

// Write the matrix as fp32, row by row or transposed ([cols, rows]). Memory: some rows, or the
// matrix; the pages of `weights`' files that were read are given back on the way, because what was
// written is not read again soon, and a whole model would stay in memory.
Status WriteRows(const MatrixSource& source, const Weights& weights, ThreadPool& pool,
                 DataFile& file);
Status WriteTransposed(const MatrixSource& source, const Weights& weights, ThreadPool& pool,
                       DataFile& file);

// Lets the system forget the pages of the files that a source lies in. Memory that is no file's
// stays.
void ForgetPages(const Weights& weights, const MatrixSource& source);

}  // namespace lockstep

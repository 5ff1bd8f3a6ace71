// FillRowsOf: the rows of a placed tensor, by all threads, checked for numbers that the target type
// cannot hold. What the writers of checkpoints call for each block (formats/tensor_stream.h).
#pragma once

#include "base/error.h"
#include "base/thread_pool.h"
#include "model/place_weights.h"

namespace lockstep {

Status FillRowsOf(const PlacedTensor& tensor, const Weights& weights, const TensorType& type,
                  int64_t first, int64_t count, ThreadPool& pool, std::byte* out);

}  // namespace lockstep

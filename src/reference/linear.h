// Linear: y = x W^T + b with W read from the checkpoint block by block and converted as it is used,
// and the two inner products of attention. The only file of the reference where speed shaped the
// code; what it computes stays plain: each element is one fixed sequence of operations (see Lanes
// in linear.cc).
#pragma once

#include <cstdint>
#include <span>

#include "base/matrix_view.h"
#include "base/thread_pool.h"
#include "model/weight_view.h"

namespace lockstep {

// x [num_tokens, inputs], y [num_tokens, outputs]; bias may be nullptr. y must not overlap x. With
// `rows`, only those rows of the weight are multiplied: y [num_tokens, rows.size()].
template <typename T>
void Linear(ThreadPool& pool, const WeightView& weight, const WeightView* bias,
            MatrixView<const T> x, MatrixView<T> y, std::span<const int32_t> rows = {});

// scores[i] = query . keys[i], i < n; keys are rows of `stride` elements, of which `dim` count.
void Scores(const float* query, const float* keys, size_t stride, size_t n, size_t dim,
            float* scores);
void Scores(const double* query, const double* keys, size_t stride, size_t n, size_t dim,
            double* scores);

// out[d] = sum over i < n of weights[i] * values[i][d], in the order of i.
void WeightedSum(const float* weights, const float* values, size_t stride, size_t n, size_t dim,
                 float* out);
void WeightedSum(const double* weights, const double* values, size_t stride, size_t n, size_t dim,
                 double* out);

}  // namespace lockstep

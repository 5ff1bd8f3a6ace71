// ReferenceDecoder: the reference's interpreter as a Decoder: one sequence that grows id by id.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "engine/generate.h"
#include "model/model.h"
#include "reference/interpreter.h"

namespace lockstep {

class ReferenceDecoder : public RewindableDecoder {
 public:
  // Called between pieces of a long Append with the ids done so far; false stops, and Append fails
  // with Interrupted(), the sequence as it was before.
  using OnProgress = std::function<bool(int64_t done, int64_t total)>;

  // Model and pool must outlive the decoder.
  ReferenceDecoder(const Model& model, ThreadPool& pool, OnProgress on_progress = {});

  Result<std::span<const float>> Append(std::span<const int32_t> ids) override;
  int64_t position() const override { return sequence_.length; }
  int64_t capacity() const override;

  size_t KeepCommonPrefix(std::span<const int32_t> ids) override;

 private:
  const ModelSpec& spec_;
  Interpreter<float> interpreter_;
  Sequence<float> sequence_;
  std::vector<int32_t> held_;  // the sequence's ids
  OnProgress on_progress_;
};

}  // namespace lockstep

// OnnxRun: one sequence under ONNX Runtime: its caches, and what each call feeds.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ort/ort_session.h"
#include "subjects/onnx_contract.h"
#include "verify/subject.h"

namespace lockstep {

class OnnxRun {
 public:
  // An empty sequence that will hold at most `capacity` ids. Session and contract must outlive it.
  static Result<OnnxRun> Start(std::shared_ptr<const OrtRuntime> runtime, OrtSession& session,
                               const OnnxContract& contract, int64_t capacity);

  // Appends ids; afterwards logits() are those of this call's positions, or of the last alone when
  // the graph's head is pruned. Fails on shapes that are not what was asked for, and on numbers
  // that are none. `extra` are further outputs: extras().
  Status Append(std::span<const int32_t> ids, const OrtSession::KeepGoing& keep_going,
                std::span<const std::string> extra = {});

  int64_t length() const { return static_cast<int64_t>(held_.size()); }
  int64_t rows() const { return rows_; }  // of logits
  int64_t vocab_size() const { return vocab_size_; }
  std::vector<float> Row(int64_t row) const {
    return logits_[0].Floats(row * vocab_size_, vocab_size_);
  }
  const std::vector<OrtTensor>& extras() const { return extras_; }

 private:
  OnnxRun(std::shared_ptr<const OrtRuntime> runtime, OrtSession& session,
          const OnnxContract& contract, int64_t capacity)
      : runtime_(std::move(runtime)), session_(session), contract_(contract), capacity_(capacity) {}
  Result<OrtTensor> Fill(const OnnxFed& fed, std::span<const int32_t> ids, int64_t past) const;
  Status TakeLogits(OrtTensor logits, int64_t count);
  Status TakeCache(size_t index, OrtTensor present, int64_t count);

  std::shared_ptr<const OrtRuntime> runtime_;
  OrtSession& session_;
  const OnnxContract& contract_;
  int64_t capacity_;
  std::vector<OrtTensor> caches_;
  std::vector<int32_t> held_;
  std::vector<OrtTensor> logits_;  // one
  std::vector<OrtTensor> extras_;
  int64_t rows_ = 0, vocab_size_ = 0;
};

}  // namespace lockstep

// OnnxRun: one sequence under ONNX Runtime, or a padded batch of some: the caches, and what each
// call feeds.
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
  // An empty sequence that will hold at most `capacity` ids, padding included. Session and contract
  // must outlive it. A `batch` of more than one needs a contract with free_batch and caches.
  static Result<OnnxRun> Start(std::shared_ptr<const OrtRuntime> runtime, OrtSession& session,
                               const OnnxContract& contract, int64_t capacity, int64_t batch = 1);

  // Appends ids; afterwards logits() are those of this call's positions, or of the last alone when
  // the graph's head is pruned. Fails on shapes that are not what was asked for, and on numbers
  // that are none. `extra` are further outputs: extras().
  Status Append(std::span<const int32_t> ids, const OrtSession::KeepGoing& keep_going,
                std::span<const std::string> extra = {});

  // The same for a batch, one row a sequence, of as many ids and padding together.
  struct PaddedRow {
    std::vector<int32_t> ids;
    size_t padding = 0;
    bool left = true;  // where the padding is
  };
  Status AppendBatch(std::span<const PaddedRow> rows, const OrtSession::KeepGoing& keep_going,
                     std::span<const std::string> extra = {});

  // Forgets every position from `length` on. Fails where a cache has let go of what lay before.
  Status CutBack(int64_t length);

  // Logits that are no numbers are no error from now on: padding may have such.
  void AllowNoNumbers() { any_number_ = true; }

  int64_t length() const { return length_; }
  int64_t rows() const { return rows_; }  // of logits, of one sequence
  // Of the first sequence.
  int64_t vocab_size() const { return vocab_size_; }
  std::vector<float> Row(int64_t row) const {
    return logits_[0].Floats(row * vocab_size_, vocab_size_);
  }
  const std::vector<OrtTensor>& extras() const { return extras_; }

 private:
  OnnxRun(std::shared_ptr<const OrtRuntime> runtime, OrtSession& session,
          const OnnxContract& contract, int64_t capacity, int64_t batch)
      : runtime_(std::move(runtime)),
        session_(session),
        contract_(contract),
        capacity_(capacity),
        masks_(static_cast<size_t>(batch)) {}
  // ids: [batch, count], those of one sequence after the other.
  Status Call(std::span<const int32_t> ids, const OrtSession::KeepGoing& keep_going,
              std::span<const std::string> extra);
  Result<OrtTensor> Fill(const OnnxFed& fed, std::span<const int32_t> ids, int64_t past) const;
  void AddPositions(int64_t past, std::vector<int64_t>& values) const;
  Result<OrtTensor> Shortened(const OrtTensor& cache, size_t axis, int64_t length) const;
  Status TakeLogits(OrtTensor logits, int64_t count);
  Status TakeCache(size_t index, OrtTensor present, int64_t count);

  std::shared_ptr<const OrtRuntime> runtime_;
  OrtSession& session_;
  const OnnxContract& contract_;
  int64_t capacity_;
  std::vector<std::vector<int64_t>> masks_;  // [batch][length]: 1, or 0 for padding
  std::vector<OrtTensor> caches_;
  std::vector<int32_t> held_;  // without caches: the ids, fed again with each call
  int64_t length_ = 0;
  bool any_number_ = false;
  std::vector<OrtTensor> logits_;  // one
  std::vector<OrtTensor> extras_;
  int64_t rows_ = 0, vocab_size_ = 0;
};

}  // namespace lockstep

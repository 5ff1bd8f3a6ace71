// EngineDecoder: the fast engine as a Decoder, beside ReferenceDecoder.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/lookup.h"
#include "model/model.h"

namespace lockstep {

class EngineDecoder : public DraftDecoder {
 public:
  // As ReferenceDecoder::OnProgress.
  using OnProgress = std::function<bool(int64_t done, int64_t total)>;

  // Packs the weights. The model must outlive the decoder.
  static Result<std::unique_ptr<EngineDecoder>> Create(const Model& model,
                                                       const EngineOptions& options,
                                                       OnProgress on_progress = {});

  Result<std::span<const float>> Append(std::span<const int32_t> ids) override;
  Result<MatrixView<const float>> AppendAll(std::span<const int32_t> ids) override;
  void Forget(int64_t count) override;
  int64_t position() const override { return sequence_.length(); }
  int64_t capacity() const override;
  const Engine& engine() const { return *engine_; }
  // How loading went, where a person should know: a sentence, or empty.
  const std::string& note() const { return engine_->plan().packed_from.note; }
  size_t KeepCommonPrefix(std::span<const int32_t> ids) override;

 private:
  EngineDecoder(const Model& model, std::unique_ptr<Engine> engine, OnProgress on_progress);
  const ModelSpec& spec_;
  std::unique_ptr<Engine> engine_;
  KvSequence sequence_;
  std::vector<int32_t> held_;  // the sequence's ids
  OnProgress on_progress_;
};

}  // namespace lockstep

// OnnxSubject: an exported decoder (an ONNX Runtime GenAI folder, or a bare model.onnx) under ONNX
// Runtime: the prompt in one call, then greedy steps through the caches that its graph asks for. It
// measures no noise of its own; its text side is that of the folder's tokenizer files, if any.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "formats/onnx.h"
#include "model/text_model.h"
#include "ort/ort_session.h"
#include "subjects/onnx_contract.h"
#include "subjects/onnx_passages.h"
#include "subjects/onnx_run.h"
#include "verify/subject.h"

namespace lockstep {

class OnnxSubject : public Subject {
 public:
  // `path` is a folder or a .onnx file. Fails where ONNX Runtime is absent, and says how to get it.
  // A run that takes longer than `timeout` is stopped, between two of the graph's operators.
  static Result<std::unique_ptr<OnnxSubject>> Open(
      const std::filesystem::path& path, int threads,
      std::chrono::seconds timeout = std::chrono::hours(24 * 365));

  std::string Name() const override;
  Abilities Can() const override;
  int64_t vocab_size() const override { return vocab_size_; }
  std::vector<std::string> Notes() const override;
  Result<std::string> RenderChat(std::string_view user_message) const override;
  Result<std::vector<int32_t>> Tokenize(const Rendered& text) const override;
  Result<PromptTrace> Run(const Probe& probe, const Progress& progress) override;

  // Values inside the graph after a prompt from an empty state, by name: from a copy of the graph
  // that gives them as outputs. Numbers of any type come as floats.
  Result<std::map<std::string, TraceTensor>> Intermediates(std::span<const int32_t> ids,
                                                           std::span<const std::string> names,
                                                           const Progress& progress);
  // A copy of the graph that gives these values as outputs as well.
  Result<std::unique_ptr<OrtSession>> OpenWithOutputs(std::span<const std::string> names) const;
  // The prompt and tokens after it on such a copy, called as Run calls the graph. `take` gets each
  // call's logits and values (OnnxRun::extras), and the position of its first row.
  Status Along(OrtSession& session, std::span<const int32_t> ids, std::span<const int32_t> tokens,
               std::span<const std::string> names,
               const std::function<Status(int64_t first, const OnnxRun& run)>& take,
               const Progress& progress) const;

  // Run by another way than whole, on such a copy.
  Result<PromptTrace> RunWatched(OrtSession& session, const Probe& probe, const OnnxWatch& watch,
                                 const Progress& progress) const;

  const OnnxModel& model() const { return model_; }
  const OnnxContract& contract() const { return contract_; }

 private:
  OnnxSubject(OnnxModel model, OnnxContract contract, TextModel text)
      : model_(std::move(model)), contract_(std::move(contract)), text_(std::move(text)) {}
  Result<PromptTrace> RunProbe(const Probe& probe, const Progress& progress);
  OrtOptions Options() const;
  // `work` under `progress` until the time is over; its error says where.
  template <typename Work>
  auto InTime(const Progress& progress, const Work& work) const;

  OnnxModel model_;
  OnnxContract contract_;
  TextModel text_;
  int threads_ = 0;
  std::chrono::seconds timeout_{};
  int64_t vocab_size_ = 0;
  std::shared_ptr<const OrtRuntime> runtime_;
  std::unique_ptr<OrtSession> session_;
};

// What runs below fp32 in a graph, for people: "weights in 4 bits, block 32, activations int8
// (accuracy_level 4): 29 of MatMulNBits".
std::vector<std::string> DescribeOnnxPrecision(const OnnxModel& model);

}  // namespace lockstep

#include "measure/logits_source.h"

#include <utility>

#include "engine/kernels/kernel_table.h"
#include "reference/interpreter.h"
#include "spec/rope_facts.h"

namespace lockstep {
namespace {

class OfReference : public LogitsSource {
 public:
  OfReference(const Model& model, ThreadPool& pool)
      : spec_(model.spec),
        interpreter_(model.spec, model.weights, pool),
        sequence_(interpreter_.NewSequence()) {}

  int64_t vocab_size() const override { return spec_.embedding.vocab_size; }
  std::string Name() const override { return "reference, fp32"; }
  bool one_call() const override { return DependsOnCallLength(spec_); }
  std::optional<int64_t> limit() const override { return ContextLimit(spec_); }
  void Reset() override { interpreter_.Truncate(sequence_, 0); }
  Result<MatrixView<const float>> Append(std::span<const int32_t> ids, bool wanted) override {
    return interpreter_.Append(sequence_, ids, wanted ? LogitsFor::kAll : LogitsFor::kNone);
  }

 private:
  const ModelSpec& spec_;
  Interpreter<float> interpreter_;
  Sequence<float> sequence_;
};

class OfEngine : public LogitsSource {
 public:
  OfEngine(const Model& model, std::unique_ptr<Engine> engine, const EngineOptions& options)
      : spec_(model.spec),
        options_(options),
        engine_(std::move(engine)),
        sequence_(engine_->NewSequence()) {}

  int64_t vocab_size() const override { return spec_.embedding.vocab_size; }
  std::string Name() const override {
    return fmt::format("engine, {} activations, {} keys and values, {}",
                       lockstep::Name(options_.activations), lockstep::Name(engine_->kv_type()),
                       engine_->kernels().name);
  }
  bool one_call() const override { return DependsOnCallLength(spec_); }
  std::optional<int64_t> limit() const override { return PositionLimit(spec_); }
  void Reset() override { sequence_ = engine_->NewSequence(); }
  Result<MatrixView<const float>> Append(std::span<const int32_t> ids, bool wanted) override {
    return engine_->Append(sequence_, ids, wanted ? Engine::Logits::kAll : Engine::Logits::kNone);
  }

 private:
  const ModelSpec& spec_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
  KvSequence sequence_;
};

}  // namespace

std::unique_ptr<LogitsSource> ReferenceLogits(const Model& model, ThreadPool& pool) {
  return std::make_unique<OfReference>(model, pool);
}

Result<std::unique_ptr<LogitsSource>> EngineLogits(const Model& model,
                                                   const EngineOptions& options) {
  LS_TRY(std::unique_ptr<Engine> engine, Engine::Create(model.spec, model.weights, options));
  return std::unique_ptr<LogitsSource>(
      std::make_unique<OfEngine>(model, std::move(engine), options));
}

}  // namespace lockstep

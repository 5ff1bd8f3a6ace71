#include "subjects/engine_passages.h"

#include <array>

#include "spec/rope_facts.h"

namespace lockstep {
namespace {

// A row at a time: they are padded to whole tiles.
LogitRows RowsOf(const MatrixView<const float>& logits) {
  LogitRows out;
  for (size_t r = 0; r < logits.rows; ++r) {
    const std::span<const float> row = logits.row(r);
    out.emplace_back(row.begin(), row.end());
  }
  return out;
}

Engine::Logits Wanted(bool all) { return all ? Engine::Logits::kAll : Engine::Logits::kLast; }

class EngineSequence : public PassageSequence {
 public:
  explicit EngineSequence(Engine& engine) : engine_(engine), sequence_(engine.NewSequence()) {}

  Result<LogitRows> Append(std::span<const int32_t> ids, bool all) override {
    LS_TRY(const auto logits, engine_.Append(sequence_, ids, Wanted(all)));
    held_.insert(held_.end(), ids.begin(), ids.end());
    return RowsOf(logits);
  }

  // What a window or a convolution has let go of is read again, as for any conversation.
  Status CutBack(int64_t length) override {
    held_.resize(static_cast<size_t>(length));
    const auto kept = static_cast<size_t>(engine_.Truncate(sequence_, length));
    const std::span<const int32_t> gone = std::span(held_).subspan(kept);
    if (gone.empty()) return {};
    LS_RETURN_IF_ERROR(engine_.Append(sequence_, gone, Engine::Logits::kNone));
    return {};
  }

 private:
  Engine& engine_;
  KvSequence sequence_;
  std::vector<int32_t> held_;
};

class EngineBatch : public PassageBatch {
 public:
  explicit EngineBatch(Engine& engine)
      : engine_(engine), first_(engine.NewSequence()), second_(engine.NewSequence()) {}

  Result<LogitRows> Append(std::span<const int32_t> first, std::span<const int32_t> second,
                           bool all) override {
    std::array<EngineStep, 2> steps;
    steps[0] = {.sequence = &second_, .ids = second, .wanted = Engine::Logits::kLast, .logits = {}};
    steps[1] = {.sequence = &first_, .ids = first, .wanted = Wanted(all), .logits = {}};
    LS_RETURN_IF_ERROR(engine_.Run(steps));
    return RowsOf(steps[1].logits);
  }

 private:
  Engine& engine_;
  KvSequence first_, second_;
};

}  // namespace

std::vector<Passage> EnginePassagesOf(const ModelSpec& spec) {
  if (DependsOnCallLength(spec)) return {Passage::kInterleaved, Passage::kPaddedBatch};
  return {Passage::kChunked, Passage::kRewound, Passage::kInterleaved, Passage::kPaddedBatch};
}

PassageMaker EnginePassages(Engine& engine) {
  return {.sequence = [&engine](int64_t) -> Result<std::unique_ptr<PassageSequence>> {
            return std::make_unique<EngineSequence>(engine);
          },
          .batch = [&engine](int64_t) -> Result<std::unique_ptr<PassageBatch>> {
            return std::make_unique<EngineBatch>(engine);
          }};
}

}  // namespace lockstep

#include "subjects/onnx_passages.h"

#include <algorithm>
#include <utility>

#include "subjects/onnx_run.h"

namespace lockstep {
namespace {

using What = OnnxFed::What;

bool Feeds(const OnnxContract& contract, What what) {
  return std::ranges::any_of(contract.fed, [&](const OnnxFed& f) { return f.what == what; });
}

bool AnyCache(const OnnxContract& contract, OnnxCache::Kind kind) {
  return std::ranges::any_of(contract.caches, [&](const OnnxCache& c) { return c.kind == kind; });
}

bool AnyNode(const OnnxModel& model, std::string_view op_type) {
  return std::ranges::any_of(model.nodes(),
                             [&](const OnnxNode& node) { return node.op_type == op_type; });
}

// Longrope and dynamic RoPE, as builders write them: a branch on the length (genai), or the largest
// position of the call, which then chooses the angles (mobius, transformers). A token's numbers
// depend on the call that it comes in, by definition.
bool DependsOnCall(const OnnxModel& model, const OnnxContract& contract) {
  const auto is_position = [&](std::string_view name) {
    return std::ranges::any_of(contract.fed, [&](const OnnxFed& f) {
      return f.what == What::kPositions && f.name == name;
    });
  };
  return std::ranges::any_of(model.nodes(), [&](const OnnxNode& node) {
    if (node.op_type == "If") return true;
    if (node.op_type != "ReduceMax") return false;
    std::string_view source = node.Input(0);
    if (const OnnxNode* cast = model.Producer(source); cast != nullptr && cast->op_type == "Cast")
      source = cast->Input(0);
    return is_position(source);
  });
}

// Two rows at once, and a way to say which of their ids are padding.
bool TakesBatch(const OnnxModel& model, const OnnxContract& contract) {
  if (!contract.free_batch || !Feeds(contract, What::kMask)) return false;
  if (Feeds(contract, What::kCachePosition) || Feeds(contract, What::kPastLength)) return false;
  // A convolution's state, and a window's few rows, would take padding for tokens.
  if (AnyCache(contract, OnnxCache::Kind::kState) || AnyCache(contract, OnnxCache::Kind::kWindow))
    return false;
  if (PaddingSideOf(model) == PaddingSide::kRight)
    return !contract.pruned_head && !AnyNode(model, "Attention") &&
           !AnyNode(model, "MultiHeadAttention");
  // Without them the graph counts padding as positions, or not: it is not said.
  return Feeds(contract, What::kPositions) && !AnyCache(contract, OnnxCache::Kind::kBuffer);
}

// What was watched in one call of `tokens` columns, of the last of `batch` sequences.
Status Tell(const OnnxWatch* watch, const OnnxRun& run, int64_t batch, int64_t tokens,
            int64_t begin, int64_t count) {
  for (size_t i = 0; watch != nullptr && i < watch->names.size(); ++i) {
    const OrtTensor& value = run.extras()[i];
    std::vector<int64_t> shape = value.shape();
    if (shape.empty() || shape[0] % batch != 0)
      return UnsupportedError("a value inside the graph has no rows of each sequence");
    shape[0] /= batch;
    const int64_t rows = value.elements() / batch;
    LS_RETURN_IF_ERROR(watch->take({.value = i,
                                    .shape = std::move(shape),
                                    .numbers = value.Floats((batch - 1) * rows, rows),
                                    .tokens = tokens,
                                    .begin = begin,
                                    .count = count}));
  }
  return {};
}

std::span<const std::string> NamesOf(const OnnxWatch* watch) {
  return watch == nullptr ? std::span<const std::string>() : std::span(watch->names);
}

class OnnxSequence : public PassageSequence {
 public:
  OnnxSequence(OnnxRun run, const OrtSession::KeepGoing& keep_going, const OnnxWatch* watch)
      : run_(std::move(run)), keep_going_(keep_going), watch_(watch) {}

  Result<LogitRows> Append(std::span<const int32_t> ids, bool all) override {
    LS_RETURN_IF_ERROR(run_.Append(ids, keep_going_, NamesOf(watch_)));
    const auto count = static_cast<int64_t>(ids.size());
    LS_RETURN_IF_ERROR(Tell(watch_, run_, 1, count, 0, count));
    if (all && run_.rows() != static_cast<int64_t>(ids.size()))
      return UnsupportedError("the graph gives logits of the last position alone");
    LogitRows out;
    for (int64_t r = all ? 0 : run_.rows() - 1; r < run_.rows(); ++r) {
      const std::vector<float> row = run_.Row(r);
      out.emplace_back(row.begin(), row.end());
    }
    return out;
  }

  Status CutBack(int64_t length) override {
    if (watch_ != nullptr) watch_->cut(length);
    return run_.CutBack(length);
  }

 private:
  OnnxRun run_;
  const OrtSession::KeepGoing keep_going_;
  const OnnxWatch* watch_;
};

class OnnxBatch : public PassageBatch {
 public:
  OnnxBatch(OnnxRun run, PaddingSide side, const OrtSession::KeepGoing& keep_going,
            const OnnxWatch* watch)
      : run_(std::move(run)), side_(side), keep_going_(keep_going), watch_(watch) {}

  Result<LogitRows> Append(std::span<const int32_t> first, std::span<const int32_t> second,
                           bool all) override {
    const size_t columns = std::max(first.size(), second.size());
    std::vector<OnnxRun::PaddedRow> rows;
    // The one that is asked about comes last: a graph that gives every row the first's mask, length
    // or ids is right about the first.
    for (const auto& ids : {second, first})
      rows.push_back({.ids = {ids.begin(), ids.end()},
                      .padding = columns - ids.size(),
                      .left = side_ == PaddingSide::kLeft});
    LS_RETURN_IF_ERROR(run_.AppendBatch(rows, keep_going_, NamesOf(watch_)));
    const auto count = static_cast<int64_t>(first.size());
    if (run_.rows() != static_cast<int64_t>(columns))
      return UnsupportedError("the graph gives logits of the last position alone");
    const int64_t begin = side_ == PaddingSide::kLeft ? run_.rows() - count : 0;
    const int64_t last = run_.rows() + begin;
    LS_RETURN_IF_ERROR(Tell(watch_, run_, 2, static_cast<int64_t>(columns), begin, count));
    LogitRows out;
    for (int64_t r = all ? 0 : count - 1; r < count; ++r) {
      const std::vector<float> row = run_.Row(last + r);
      out.emplace_back(row.begin(), row.end());
    }
    return out;
  }

 private:
  OnnxRun run_;
  PaddingSide side_;
  const OrtSession::KeepGoing keep_going_;
  const OnnxWatch* watch_;
};

}  // namespace

PaddingSide PaddingSideOf(const OnnxModel& model) {
  return AnyNode(model, "GroupQueryAttention") ? PaddingSide::kRight : PaddingSide::kLeft;
}

std::vector<Passage> OnnxPassagesOf(const OnnxModel& model, const OnnxContract& contract) {
  if (contract.caches.empty()) return {};  // every step runs the whole sequence anyway
  std::vector<Passage> out;
  const bool depends = DependsOnCall(model, contract);
  if (!depends) out.push_back(Passage::kChunked);
  if (!depends && !AnyCache(contract, OnnxCache::Kind::kState)) out.push_back(Passage::kRewound);
  out.push_back(Passage::kInterleaved);
  if (!depends && TakesBatch(model, contract)) out.push_back(Passage::kPaddedBatch);
  return out;
}

PassageMaker OnnxPassages(std::shared_ptr<const OrtRuntime> runtime, OrtSession& session,
                          const OnnxContract& contract, PaddingSide side,
                          OrtSession::KeepGoing keep_going, const OnnxWatch* watch) {
  const auto start = [runtime = std::move(runtime), &session, &contract](
                         int64_t capacity, int64_t batch) -> Result<OnnxRun> {
    LS_TRY(OnnxRun run, OnnxRun::Start(runtime, session, contract, capacity, batch));
    run.AllowNoNumbers();
    return run;
  };
  // The sequence that is asked about is made first.
  return {.sequence = [start, keep_going, watch](
                          int64_t capacity) mutable -> Result<std::unique_ptr<PassageSequence>> {
            LS_TRY(OnnxRun run, start(capacity, 1));
            return std::make_unique<OnnxSequence>(std::move(run), keep_going,
                                                  std::exchange(watch, nullptr));
          },
          .batch = [start, side, keep_going,
                    watch](int64_t capacity) -> Result<std::unique_ptr<PassageBatch>> {
            LS_TRY(OnnxRun run, start(capacity, 2));
            return std::make_unique<OnnxBatch>(std::move(run), side, keep_going, watch);
          }};
}

}  // namespace lockstep

#include "measure/speed.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "engine/sampler.h"

namespace lockstep {
namespace {

// Ids of a prompt per call, as `run` gives them: between two calls Ctrl-C is looked at.
constexpr auto kPiece = static_cast<size_t>(kMaxWalkTokens);

// Fixed on every machine: a linear congruential generator (Knuth's MMIX constants).
std::vector<int32_t> SomeIds(int64_t n, int64_t vocab_size) {
  std::vector<int32_t> ids;
  uint64_t state = 0x10c;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    ids.push_back(static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocab_size)));
  }
  return ids;
}

class Stopwatch {
 public:
  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

class Meter {
 public:
  Meter(Engine& engine, const ModelSpec& spec, const SpeedRequest& request)
      : engine_(engine), request_(request), vocab_size_(spec.embedding.vocab_size) {
    const std::optional<int64_t> limit = PositionLimit(spec);
    const auto fits = [&](std::string_view what, int64_t positions) {
      if (!limit || positions <= *limit) return true;
      table_.skipped.push_back(fmt::format("{} needs {} positions, the model's context has {}",
                                           what, positions, *limit));
      return false;
    };
    for (const int64_t n : Sorted(request.prompts))
      if (fits(fmt::format("prefill of {}", n), n)) prompts_.insert(n);
    for (const int64_t n : Sorted(request.depths))
      if (fits(fmt::format("decode of {} at depth {}", request.steps, n),
               std::max<int64_t>(n, 1) + request.steps))
        depths_.insert(n);
    for (const int64_t n : Sorted(request.batches))
      if (fits(fmt::format("decode of {} in a batch of {}", request.steps, n), 1 + request.steps))
        batches_.insert(n);
    std::set<int64_t> sizes = prompts_;
    sizes.insert(depths_.begin(), depths_.end());
    sizes_.assign(sizes.begin(), sizes.end());
    ids_ = SomeIds(std::max<int64_t>(1, sizes_.empty() ? 1 : sizes_.back()), vocab_size_);
    total_ = (request.rounds + 1) * static_cast<int64_t>(sizes_.size() + batches_.size());
  }

  Result<SpeedTable> Measure() {
    if (sizes_.empty() && batches_.empty())
      return UsageError("nothing that was asked for fits: {}", fmt::join(table_.skipped, "; "));
    for (int round = 0; round <= request_.rounds; ++round) {
      const bool counts = round > 0;
      for (const int64_t size : sizes_) LS_RETURN_IF_ERROR(Size(size, counts));
      for (const int64_t n : batches_) LS_RETURN_IF_ERROR(Batch(n, counts));
    }
    Tell(prefill_, table_.prefill);
    Tell(decode_, table_.decode);
    Tell(batch_, table_.batch);
    return std::move(table_);
  }

 private:
  struct Samples {
    std::vector<double> tokens_per_second;
    size_t kv_bytes = 0;
    void Add(int64_t tokens, double seconds, size_t bytes) {
      tokens_per_second.push_back(static_cast<double>(tokens) / seconds);
      kv_bytes = bytes;
    }
  };

  static std::set<int64_t> Sorted(const std::vector<int64_t>& v) { return {v.begin(), v.end()}; }
  static void Tell(const std::map<int64_t, Samples>& samples, std::vector<Speed>& into) {
    for (const auto& [size, s] : samples)
      into.push_back({size, SpreadOf(s.tokens_per_second), s.kv_bytes});
  }

  Status Go(std::string_view doing) const {
    if (request_.progress && !request_.progress(doing, done_, total_))
      return Fail(ErrorCode::kInterrupted, "interrupted");
    return {};
  }

  // A prompt of `size` tokens, and what follows it.
  Status Size(int64_t size, bool counts) {
    auto sequence = engine_.NewSequence();
    const auto prompt = std::span(ids_).first(static_cast<size_t>(std::max<int64_t>(size, 1)));
    const Stopwatch watch;
    double seconds = 0;
    int32_t next = 0;
    for (size_t begin = 0; begin < prompt.size();) {
      const size_t count = std::min(kPiece, prompt.size() - begin);
      LS_RETURN_IF_ERROR(Go("reading prompts"));
      const bool last = begin + count == prompt.size();
      LS_TRY(const auto logits,
             engine_.Append(sequence, prompt.subspan(begin, count),
                            last ? Engine::Logits::kLast : Engine::Logits::kNone));
      seconds = watch.Seconds();
      begin += count;
      if (last) {
        LS_TRY(next, Argmax(logits.row(0)));
      }
    }
    const auto held = [&] { return engine_.cache().BytesOf(sequence); };
    if (counts && prompts_.contains(size)) prefill_[size].Add(size, seconds, held());
    if (depths_.contains(size)) {
      const Stopwatch decoding;
      for (int64_t step = 0; step < request_.steps; ++step) {
        LS_RETURN_IF_ERROR(Go("decoding"));
        LS_TRY(const auto logits,
               engine_.Append(sequence, std::span(&next, 1), Engine::Logits::kLast));
        LS_TRY(next, Argmax(logits.row(0)));
      }
      if (counts) decode_[size].Add(request_.steps, decoding.Seconds(), held());
    }
    ++done_;
    return {};
  }

  // `n` sequences, each from an id of its own, all one step further in each call.
  Status Batch(int64_t n, bool counts) {
    const auto count = static_cast<size_t>(n);
    std::vector<KvSequence> sequences;
    std::vector<int32_t> next = SomeIds(n, vocab_size_);
    std::vector<EngineStep> steps(count);
    for (size_t i = 0; i < count; ++i) sequences.push_back(engine_.NewSequence());
    for (size_t i = 0; i < count; ++i)
      steps[i] = {.sequence = &sequences[i], .ids = std::span(&next[i], 1)};
    const auto step = [&]() -> Status {
      LS_RETURN_IF_ERROR(Go("decoding batches"));
      LS_RETURN_IF_ERROR(engine_.Run(steps));
      for (size_t i = 0; i < count; ++i) {
        LS_TRY(next[i], Argmax(steps[i].logits.row(0)));
      }
      return {};
    };
    LS_RETURN_IF_ERROR(step());
    const Stopwatch decoding;
    for (int64_t i = 0; i < request_.steps; ++i) LS_RETURN_IF_ERROR(step());
    const double seconds = decoding.Seconds();
    size_t held = 0;
    for (const KvSequence& sequence : sequences) held += engine_.cache().BytesOf(sequence);
    if (counts) batch_[n].Add(n * request_.steps, seconds, held);
    ++done_;
    return {};
  }

  Engine& engine_;
  const SpeedRequest& request_;
  int64_t vocab_size_;
  std::set<int64_t> prompts_, depths_, batches_;
  std::vector<int64_t> sizes_;  // of prompts and depths
  std::vector<int32_t> ids_;
  int64_t done_ = 0, total_ = 0;
  std::map<int64_t, Samples> prefill_, decode_, batch_;  // by size
  SpeedTable table_;
};

}  // namespace

Result<SpeedTable> MeasureSpeed(Engine& engine, const ModelSpec& spec,
                                const SpeedRequest& request) {
  return Meter(engine, spec, request).Measure();
}

}  // namespace lockstep

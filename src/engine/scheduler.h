// Scheduler: many requests over one engine, batched step by step. A step takes the next id of every
// sequence that is being continued and a chunk of the prompts that are being read.
//
//   Submit -> waiting -> running: its prompt is read, then continued -> on_end
//
// - Who comes first is read first; a short prompt rides along with a long one and overtakes it.
// - An answer never depends on its neighbours: the engine gives the same logits in any batch, and
//   everything between logits and id belongs to one request. An error ends its own request only.
// - What a request has in common with the beginning of another, running or ended, is not computed
//   again; numbers are those of a fresh run.
// - Memory: a request waits until its prompt fits. Where running ones outgrow the limit, the
//   youngest goes back to wait, and is read again later to the same numbers.
//
// Submit, Check, Cancel and statistics may be called from any thread, also out of a callback. Step,
// or the thread that Start makes, calls the engine and all callbacks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "engine/prefix_cache.h"

namespace lockstep {

// What the scheduler needs of an engine.
class Stepper {
 public:
  virtual ~Stepper() = default;
  // All steps together; on error nothing was appended.
  virtual Status Run(std::span<EngineStep> steps) = 0;
  virtual KvCache& cache() = 0;
};

struct SchedulerOptions {
  size_t slots = 16;      // requests that run at once
  size_t queue = 1024;    // and that wait
  int64_t chunk = 256;    // ids of prompts in a step while others are being continued
  int64_t positions = 0;  // of a sequence; 0: no bound
  int64_t vocab_size = 0;
  // A token's numbers depend on the call it comes in (DependsOnCallLength): a prompt is read in one
  // call, and nothing is shared.
  bool whole_prompts = false;
  size_t prefix_bytes = size_t{256} << 20;  // for ended sequences; 0: none is kept
};

class EngineStepper final : public Stepper {
 public:
  explicit EngineStepper(Engine& engine) : engine_(engine) {}
  Status Run(std::span<EngineStep> steps) override { return engine_.Run(steps); }
  KvCache& cache() override { return engine_.cache(); }

 private:
  Engine& engine_;
};

// What a model says of them: positions, vocab_size and whole_prompts.
SchedulerOptions SchedulerOptionsFor(const ModelSpec& spec);

struct NewToken {
  int32_t id = 0;
  std::span<const float> logits;  // that it was chosen from, as the model gave them
};

struct RequestEnd {
  StopReason reason = StopReason::kLength;
  std::optional<Error> error;  // then `reason` says nothing
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of them, taken from another sequence
  int64_t new_tokens = 0;     // the end token included
  uint64_t seed = 0;
};

struct Request {
  std::vector<int32_t> prompt;
  GenerationConfig config;
  uint64_t fallback_seed = 0;  // as Sampler's
  bool share_prefix = true;
  // False cancels (a stop string was seen, the client has gone).
  std::function<bool(const NewToken&)> on_token;
  std::function<void(const RequestEnd&)> on_end;  // exactly once, and last
  // For each position of the prompt, in order, the logits of what follows it. Nothing is shared
  // then.
  std::function<void(int64_t position, std::span<const float> logits)> on_prompt_logits;
  // Changes the logits before anything else does, as a grammar that allows only some tokens.
  std::function<void(std::span<const int32_t> ids, std::span<float> logits)> adjust;
};

struct SchedulerStatistics {
  size_t waiting = 0, running = 0;  // now
  size_t kept_sequences = 0, kept_bytes = 0;
  size_t cache_bytes = 0;
  // Since the beginning.
  uint64_t submitted = 0, ended = 0, cancelled = 0, failed = 0, preempted = 0;
  uint64_t steps = 0;
  uint64_t prompt_tokens = 0, new_tokens = 0;   // computed
  uint64_t prefix_hits = 0, prefix_tokens = 0;  // requests that shared, and what they need not read
};

class Scheduler {
 public:
  // The stepper must outlive the scheduler.
  Scheduler(Stepper& stepper, SchedulerOptions options);
  ~Scheduler();  // Stop
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Could this request ever run?
  Status Check(const Request& request) const;
  // A number for Cancel. Fails as Check does, and when the queue is full or the scheduler stops.
  Result<uint64_t> Submit(Request request);
  // Takes effect before the next step, wherever the request is; one that has ended is no error.
  void Cancel(uint64_t request);

  // One step of the engine, on this thread. False: there was nothing to do.
  bool Step();

  // Or: steps on a thread of its own whenever there is something to do, until Stop.
  void Start();
  // Ends what has not ended, as cancelled. For good: nothing can be submitted afterwards. Never out
  // of a callback: it waits for the thread that the callback runs on.
  void Stop();
  // Waits until nothing waits or runs; false: it took longer.
  bool WaitUntilIdle(std::chrono::milliseconds most);

  SchedulerStatistics statistics() const;

 private:
  struct Sequence;
  using SequencePtr = std::unique_ptr<Sequence>;
  struct Member {
    Sequence* sequence;
    int64_t count;
  };

  void Arrivals();
  void Admit();
  void Share(Sequence& sequence);
  void Choose();
  int64_t ChunkOf(const Sequence& sequence, int64_t budget) const;
  bool WaitsForPrefix(const Sequence& sequence);
  bool Add(Sequence& sequence, int64_t count);
  void Preempt(Sequence& sequence);
  void RunMembers();
  void Advance(Sequence& sequence, int64_t count, MatrixView<const float> logits);
  void Continue(Sequence& sequence, std::span<const float> logits);
  void End(Sequence& sequence, StopReason reason, std::optional<Error> error = {});
  void Sweep();
  void Publish();

  Stepper& stepper_;
  KvCache& cache_;
  const SchedulerOptions options_;

  // Of the stepping thread.
  std::deque<SequencePtr> waiting_;   // by arrival
  std::vector<SequencePtr> running_;  // by arrival
  PrefixCache prefixes_;
  std::vector<Member> members_;
  std::vector<EngineStep> steps_;
  std::vector<float> adjusted_;
  SchedulerStatistics counts_;

  // Between threads.
  mutable std::mutex mutex_;
  std::condition_variable arrived_, idle_;
  std::vector<SequencePtr> incoming_;
  std::vector<uint64_t> cancelled_;
  uint64_t next_id_ = 1;
  size_t open_ = 0;         // submitted and not ended
  size_t waiting_now_ = 0;  // waiting_.size(), for other threads
  bool stopping_ = false;
  SchedulerStatistics published_;
  std::thread thread_;
};

}  // namespace lockstep

#include "engine/scheduler.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/sampler.h"
#include "spec/rope_facts.h"

namespace lockstep {
namespace {

// Sharing less than this saves less than the copy of the page costs in which two sequences part.
constexpr int64_t kLeastShared = 16;
// Waiting for another request to read the common beginning pays from here on.
constexpr int64_t kLeastAwaited = kPageTokens;

}  // namespace

struct Scheduler::Sequence {
  Sequence(uint64_t number, Request r)
      : id(number),
        request(std::move(r)),
        ids(request.prompt),
        sampler(request.config, request.prompt.size(), request.fallback_seed) {
    const GenerationConfig& config = request.config;
    if (config.max_new_tokens) {
      most = *config.max_new_tokens;
    } else if (config.max_length) {
      most = *config.max_length - PromptLength();
    }
  }

  int64_t PromptLength() const { return static_cast<int64_t>(request.prompt.size()); }
  int64_t NewTokens() const { return static_cast<int64_t>(ids.size()) - PromptLength(); }
  int64_t Remaining() const { return static_cast<int64_t>(ids.size()) - kv.length(); }
  bool Shares() const { return request.share_prefix && !request.on_prompt_logits; }

  uint64_t id;  // grows with arrival
  Request request;
  std::vector<int32_t> ids;  // prompt and new ones; the last ones are not in kv yet
  Sampler sampler;
  int64_t most = std::numeric_limits<int64_t>::max();  // new tokens
  KvSequence kv;
  int64_t cached = 0;
  int64_t prompt_logits = 0;  // positions whose logits were handed out
  // Where a chunk must end, because others part from this sequence there and windows would forget
  // it; 0: nowhere.
  int64_t part_at = 0;
  bool begun = false;      // something of it was run: what it shares is settled
  bool rides = false;      // in this step, beside a longer prompt
  bool preempted = false;  // goes back to wait
  bool again = false;      // has been preempted before
  bool ended = false;
};

SchedulerOptions SchedulerOptionsFor(const ModelSpec& spec) {
  SchedulerOptions options;
  options.positions = PositionLimit(spec).value_or(0);
  options.vocab_size = spec.embedding.vocab_size;
  options.whole_prompts = DependsOnCallLength(spec);
  return options;
}

Scheduler::Scheduler(Stepper& stepper, SchedulerOptions options)
    : stepper_(stepper),
      cache_(stepper.cache()),
      options_(options),
      prefixes_(cache_, options.whole_prompts ? 0 : options.prefix_bytes) {
  LS_CHECK(options_.slots > 0 && options_.chunk > 0, "{} {}", options_.slots, options_.chunk);
}

Scheduler::~Scheduler() { Stop(); }

void Scheduler::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    arrived_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  // Nothing comes in any more.
  for (SequencePtr& sequence : incoming_) waiting_.push_back(std::move(sequence));
  for (auto& sequence : running_)
    if (!sequence->ended) End(*sequence, StopReason::kCancelled);
  for (auto& sequence : waiting_)
    if (!sequence->ended) End(*sequence, StopReason::kCancelled);
  incoming_.clear();
  Sweep();
  Publish();
}

Status Scheduler::Check(const Request& request) const {
  if (request.prompt.empty())
    return UsageError("the prompt has no tokens; at least one is needed to begin");
  for (size_t i = 0; i < request.prompt.size(); ++i)
    if (request.prompt[i] < 0 || request.prompt[i] >= options_.vocab_size)
      return UsageError("token {} of the prompt has id {}, but the vocabulary has ids 0 to {}", i,
                        request.prompt[i], options_.vocab_size - 1);
  const auto length = static_cast<int64_t>(request.prompt.size());
  if (options_.positions > 0 && length > options_.positions)
    return UsageError("the prompt has {} tokens but the context holds {}", length,
                      options_.positions);
  return {};
}

Result<uint64_t> Scheduler::Submit(Request request) {
  LS_RETURN_IF_ERROR(Check(request));
  const std::lock_guard lock(mutex_);
  if (stopping_) return UsageError("the scheduler takes no more requests: it is stopping");
  if (incoming_.size() + waiting_now_ >= options_.queue)
    return UsageError("{} requests wait already, which is the limit; try again later",
                      options_.queue);
  const uint64_t id = next_id_++;
  incoming_.push_back(std::make_unique<Sequence>(id, std::move(request)));
  ++open_;
  ++published_.submitted;
  arrived_.notify_one();
  return id;
}

void Scheduler::Cancel(uint64_t request) {
  const std::lock_guard lock(mutex_);
  if (open_ == 0) return;  // no step comes that would take the number away
  cancelled_.push_back(request);
  arrived_.notify_one();
}

bool Scheduler::Step() {
  const uint64_t ended = counts_.ended;
  Arrivals();
  Admit();
  Choose();
  const bool worked = !members_.empty() || counts_.ended != ended;
  if (!members_.empty()) RunMembers();
  Sweep();
  Publish();
  return worked;
}

void Scheduler::Start() {
  LS_CHECK(!thread_.joinable());
  thread_ = std::thread([this] {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        arrived_.wait(lock, [&] { return stopping_ || open_ > 0; });
        if (stopping_) return;
      }
      if (Step()) continue;
      // Nothing could be done although something is open: it is just being submitted or cancelled.
      std::unique_lock lock(mutex_);
      arrived_.wait(lock, [&] {
        return stopping_ || open_ == 0 || !incoming_.empty() || !cancelled_.empty();
      });
    }
  });
}

bool Scheduler::WaitUntilIdle(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, most, [&] { return open_ == 0; });
}

SchedulerStatistics Scheduler::statistics() const {
  const std::lock_guard lock(mutex_);
  SchedulerStatistics statistics = published_;
  statistics.waiting = incoming_.size() + waiting_now_;
  return statistics;
}

// Takes over what other threads left.
void Scheduler::Arrivals() {
  std::vector<uint64_t> cancelled;
  {
    const std::lock_guard lock(mutex_);
    for (SequencePtr& sequence : incoming_) waiting_.push_back(std::move(sequence));
    incoming_.clear();
    cancelled.swap(cancelled_);
    waiting_now_ = waiting_.size();
  }
  if (cancelled.empty()) return;
  std::sort(cancelled.begin(), cancelled.end());
  const auto cancel = [&](Sequence& sequence) {
    if (std::binary_search(cancelled.begin(), cancelled.end(), sequence.id))
      End(sequence, StopReason::kCancelled);
  };
  for (auto& sequence : running_) cancel(*sequence);
  for (auto& sequence : waiting_) cancel(*sequence);
  Sweep();
}

// Gives slots to those who wait, as long as their prompts fit into memory.
void Scheduler::Admit() {
  const size_t limit = cache_.limit_bytes();
  const auto need_of = [&](const Sequence& sequence) {
    const int64_t count = sequence.Remaining() + 1;
    return cache_.BytesToRead(sequence.kv, count,
                              options_.whole_prompts ? count : 2 * options_.chunk);
  };
  size_t promised = 0;  // to prompts that are still being read
  for (const auto& sequence : running_) promised += need_of(*sequence);
  while (!waiting_.empty() && running_.size() < options_.slots) {
    Sequence& next = *waiting_.front();
    next.preempted = false;
    next.kv = cache_.NewSequence();
    // Nothing to compute: as Generate, which then does not look at the model.
    if (next.most <= 0 && !next.request.on_prompt_logits) {
      End(next, StopReason::kLength);
      waiting_.pop_front();
      continue;
    }
    Share(next);
    const size_t need = need_of(next);
    const auto fits = [&] {
      return limit == 0 || (need <= limit && cache_.bytes_in_use() + promised <= limit - need);
    };
    while (!fits() && prefixes_.EvictOldest()) {
    }
    // Alone it is let in, and told what is missing where it does not fit.
    if (!fits() && !running_.empty()) {
      next.kv = KvSequence();
      break;
    }
    promised += need;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

// Takes over what another sequence holds of the beginning, if that is more than is held.
void Scheduler::Share(Sequence& sequence) {
  if (options_.whole_prompts || sequence.begun || !sequence.Shares()) return;
  PrefixMatch match = prefixes_.Find(sequence.ids);
  for (const auto& other : running_)
    if (other.get() != &sequence && !other->ended && !other->preempted)
      match.Consider(cache_, sequence.ids, other->kv,
                     std::span(other->ids).first(static_cast<size_t>(other->kv.length())));
  if (match.length >= sequence.kv.length() + kLeastShared) {
    sequence.kv = cache_.Fork(*match.sequence, match.length);
    if (!sequence.again) sequence.cached = std::min(match.length, sequence.PromptLength());
  }
  // A place where requests part has been seen twice: the third one shall find it.
  if (cache_.windowed() && match.common >= match.length + kLeastAwaited)
    sequence.part_at = match.common;
}

// Does a sequence of this step read what this one begins with? Then it is taken over afterwards.
bool Scheduler::WaitsForPrefix(const Sequence& sequence) {
  if (options_.whole_prompts || sequence.begun || !sequence.Shares()) return false;
  for (const Member& member : members_) {
    Sequence& other = *member.sequence;
    if (member.count <= 1 || !other.Shares()) continue;
    const int64_t common = std::min(CommonPrefix(sequence.ids, other.ids),
                                    static_cast<int64_t>(sequence.ids.size()) - 1);
    if (common < sequence.kv.length() + kLeastAwaited || common <= other.kv.length()) continue;
    if (cache_.windowed() && (other.part_at <= other.kv.length() || common < other.part_at)) {
      other.part_at = common;
      // Its chunk of this step may reach beyond.
      const int64_t most = common - other.kv.length();
      for (Member& mine : members_)
        if (mine.sequence == &other) mine.count = std::min(mine.count, most);
    }
    return true;
  }
  return false;
}

// How many of a sequence's ids a step may take.
int64_t Scheduler::ChunkOf(const Sequence& sequence, int64_t budget) const {
  const int64_t held = sequence.kv.length();
  // Read again after it was preempted: in the calls of the first time.
  if (options_.whole_prompts)
    return held < sequence.PromptLength() ? sequence.PromptLength() - held : 1;
  int64_t count = std::min(sequence.Remaining(), budget);
  if (sequence.part_at > held) count = std::min(count, sequence.part_at - held);
  return count;
}

// What runs in this step.
void Scheduler::Choose() {
  members_.clear();
  for (const auto& sequence : running_)
    if (sequence->Remaining() == 1) Add(*sequence, 1);

  // With nobody to stall, twice as much: fewer steps, and the same numbers.
  int64_t budget = members_.empty() ? 2 * options_.chunk : options_.chunk;
  // A quarter is for prompts that fit into it, however long those before them are. The first one
  // has all the rest: so none starves, and of several long ones the first is read first.
  int64_t aside = budget / 4;
  bool first = true;
  for (const auto& sequence : running_) {
    sequence->rides = false;
    if (sequence->Remaining() <= 1 || sequence->preempted) continue;
    Share(*sequence);
    if (!first && !options_.whole_prompts && sequence->Remaining() <= aside) {
      sequence->rides = true;
      aside -= sequence->Remaining();
      budget -= sequence->Remaining();
    }
    first = false;
  }
  for (const auto& sequence : running_) {
    if (sequence->preempted || sequence->ended) continue;
    const bool chosen = std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
      return member.sequence == sequence.get();
    });
    if (chosen || WaitsForPrefix(*sequence)) continue;
    if (sequence->rides) {
      Add(*sequence, sequence->Remaining());
    } else if (budget > 0) {
      const int64_t count = ChunkOf(*sequence, budget);
      if (Add(*sequence, count)) budget -= count;
    }
  }
}

// Takes `count` ids of a sequence into the step, and the memory for it where it must.
bool Scheduler::Add(Sequence& sequence, int64_t count) {
  if (sequence.ended || sequence.preempted) return false;
  for (;;) {
    const Status extended = cache_.Extend(sequence.kv, count);
    if (extended) break;
    if (prefixes_.EvictOldest()) continue;
    Sequence* youngest = nullptr;
    bool alone = true;
    for (const auto& other : running_) {
      if (other->ended || other->preempted) continue;
      youngest = other.get();
      alone = alone && other.get() == &sequence;
    }
    if (alone) {
      End(sequence, StopReason::kContextFull, extended.error());
      return false;
    }
    Preempt(*youngest);
    if (youngest == &sequence) return false;
  }
  members_.push_back({&sequence, count});
  return true;
}

// Back to wait; its memory is free at once.
void Scheduler::Preempt(Sequence& sequence) {
  std::erase_if(members_, [&](const Member& member) { return member.sequence == &sequence; });
  sequence.kv = KvSequence();
  sequence.preempted = true;
  sequence.again = true;
  sequence.begun = false;
  sequence.part_at = 0;
  ++counts_.preempted;
}

void Scheduler::RunMembers() {
  steps_.clear();
  for (const Member& member : members_) {
    Sequence& sequence = *member.sequence;
    const auto held = static_cast<size_t>(sequence.kv.length());
    EngineStep step{
        .sequence = &sequence.kv,
        .ids =
            std::span<const int32_t>(sequence.ids).subspan(held, static_cast<size_t>(member.count)),
        .wanted = EngineStep::Logits::kNone,
        .logits = {}};
    if (member.count == sequence.Remaining()) step.wanted = EngineStep::Logits::kLast;
    if (sequence.request.on_prompt_logits && held < sequence.request.prompt.size())
      step.wanted = EngineStep::Logits::kAll;
    steps_.push_back(step);
  }
  ++counts_.steps;
  if (stepper_.Run(steps_)) {
    for (size_t i = 0; i < members_.size(); ++i)
      Advance(*members_[i].sequence, members_[i].count, steps_[i].logits);
    return;
  }
  // Nothing was appended. Each alone, so that one's error is no other's.
  for (size_t i = 0; i < members_.size(); ++i) {
    const Status alone = stepper_.Run(std::span(steps_).subspan(i, 1));
    if (alone)
      Advance(*members_[i].sequence, members_[i].count, steps_[i].logits);
    else
      End(*members_[i].sequence, StopReason::kCancelled, alone.error());
  }
}

// `count` ids of a sequence were run.
void Scheduler::Advance(Sequence& sequence, int64_t count, MatrixView<const float> logits) {
  const int64_t held = sequence.kv.length(), before = held - count;
  if (!sequence.begun && sequence.cached > 0 && !sequence.again) {
    ++counts_.prefix_hits;
    counts_.prefix_tokens += static_cast<uint64_t>(sequence.cached);
  }
  sequence.begun = true;
  const int64_t of_prompt = std::min(held, sequence.PromptLength()) - before;
  if (of_prompt > 0) counts_.prompt_tokens += static_cast<uint64_t>(of_prompt);
  if (sequence.request.on_prompt_logits)
    for (; sequence.prompt_logits < std::min(held, sequence.PromptLength());
         ++sequence.prompt_logits)
      sequence.request.on_prompt_logits(
          sequence.prompt_logits, logits.row(static_cast<size_t>(sequence.prompt_logits - before)));
  if (sequence.Remaining() == 0) Continue(sequence, logits.row(logits.rows - 1));
  if (sequence.ended) return;
  // The end of a prompt, and where requests part: windows forget it, and what begins like this may
  // come again.
  if (cache_.windowed() && sequence.Shares() &&
      (held == sequence.part_at || held == sequence.PromptLength()))
    prefixes_.Insert(std::span(sequence.ids).first(static_cast<size_t>(held)),
                     cache_.Fork(sequence.kv, held));
}

// All ids were run: chooses the next one, as Generate does.
void Scheduler::Continue(Sequence& sequence, std::span<const float> logits) {
  if (sequence.most <= 0) return End(sequence, StopReason::kLength);
  std::span<const float> scores = logits;
  if (sequence.request.adjust) {
    adjusted_.assign(logits.begin(), logits.end());
    sequence.request.adjust(sequence.ids, adjusted_);
    scores = adjusted_;
  }
  const Result<int32_t> id = sequence.sampler.Next(scores, sequence.ids);
  if (!id) return End(sequence, StopReason::kCancelled, id.error());
  sequence.ids.push_back(*id);
  ++counts_.new_tokens;
  if (sequence.request.on_token && !sequence.request.on_token({*id, logits}))
    return End(sequence, StopReason::kCancelled);
  if (sequence.sampler.IsEnd(*id)) return End(sequence, StopReason::kEndToken);
  if (sequence.NewTokens() >= sequence.most) return End(sequence, StopReason::kLength);
  if (options_.positions > 0 && static_cast<int64_t>(sequence.ids.size()) > options_.positions)
    End(sequence, StopReason::kContextFull);
}

void Scheduler::End(Sequence& sequence, StopReason reason, std::optional<Error> error) {
  sequence.ended = true;
  ++counts_.ended;
  if (error) {
    ++counts_.failed;
  } else if (reason == StopReason::kCancelled) {
    ++counts_.cancelled;
  }
  const int64_t held = sequence.kv.length();
  if (!error && held > 0 && sequence.request.share_prefix) {
    cache_.Truncate(sequence.kv, held);  // pages that were taken for more
    prefixes_.Insert(std::span(sequence.ids).first(static_cast<size_t>(held)),
                     std::move(sequence.kv));
  }
  sequence.kv = KvSequence();
  if (sequence.request.on_end)
    sequence.request.on_end({.reason = reason,
                             .error = std::move(error),
                             .prompt_tokens = sequence.PromptLength(),
                             .cached_tokens = sequence.cached,
                             .new_tokens = sequence.NewTokens(),
                             .seed = sequence.sampler.seed()});
}

// Lets go of what ended, and sends back what was preempted.
void Scheduler::Sweep() {
  const auto ended = [](const SequencePtr& sequence) { return sequence->ended; };
  std::erase_if(running_, ended);
  std::erase_if(waiting_, ended);
  // The youngest first: in front of it, those that came before it.
  for (size_t i = running_.size(); i-- > 0;)
    if (running_[i]->preempted) {
      waiting_.push_front(std::move(running_[i]));
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    }
}

void Scheduler::Publish() {
  counts_.running = running_.size();
  counts_.kept_sequences = prefixes_.size();
  counts_.kept_bytes = prefixes_.bytes();
  counts_.cache_bytes = cache_.bytes_in_use();
  const std::lock_guard lock(mutex_);
  const uint64_t submitted = published_.submitted;
  open_ -= counts_.ended - published_.ended;
  if (open_ == 0) idle_.notify_all();
  published_ = counts_;
  published_.submitted = submitted;
  waiting_now_ = waiting_.size();
}

}  // namespace lockstep

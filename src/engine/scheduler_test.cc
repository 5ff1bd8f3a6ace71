#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>

#include "base/error.h"
#include "engine/hash_stepper.h"

namespace lockstep {
namespace {

struct Outcome {
  std::vector<int32_t> ids;
  std::vector<float> logits;
  std::optional<RequestEnd> end;
  int ends = 0;
};

SchedulerOptions Options(size_t slots = 16, int64_t chunk = 64) {
  SchedulerOptions options;
  options.slots = slots;
  options.chunk = chunk;
  options.vocab_size = kVocab;
  return options;
}

Request Ask(std::vector<int32_t> prompt, int64_t new_tokens, Outcome& outcome) {
  Request request;
  request.prompt = std::move(prompt);
  request.config.max_new_tokens = new_tokens;
  request.on_token = [&outcome](const NewToken& token) {
    outcome.ids.push_back(token.id);
    outcome.logits.insert(outcome.logits.end(), token.logits.begin(), token.logits.end());
    return true;
  };
  request.on_end = [&outcome](const RequestEnd& end) {
    outcome.end = end;
    ++outcome.ends;
  };
  return request;
}

uint64_t Submitted(Scheduler& scheduler, Request request) {
  Result<uint64_t> id = scheduler.Submit(std::move(request));
  LS_CHECK(id.has_value(), "{}", id.error().message);
  return *id;
}

void Finish(Scheduler& scheduler) {
  int steps = 0;
  while (scheduler.Step()) ASSERT_LT(++steps, 100000);
}

std::vector<int32_t> Ids(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % kVocab);
  return ids;
}

std::vector<int32_t> Joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void ExpectAsAlone(const Request& asked, const Outcome& outcome, std::optional<int64_t> window,
                   int64_t capacity = 0) {
  ASSERT_TRUE(outcome.end);
  ASSERT_FALSE(outcome.end->error) << outcome.end->error->message;
  const bool cancelled = outcome.end->reason == StopReason::kCancelled;
  HashDecoder decoder(window, capacity);
  Outcome alone;
  const auto result = Generate(
      decoder, asked.prompt, asked.config,
      [&](int32_t id) {
        alone.ids.push_back(id);
        return !cancelled || alone.ids.size() < outcome.ids.size();
      },
      {}, asked.fallback_seed);
  ASSERT_TRUE(result) << result.error().message;
  if (cancelled) {
    if (outcome.ids.empty()) return;
  } else {
    EXPECT_EQ(outcome.end->reason, result->reason);
  }
  EXPECT_EQ(outcome.ids, alone.ids);
  HashDecoder again(window, capacity);
  std::span<const int32_t> next = asked.prompt;
  for (size_t i = 0; i < outcome.ids.size(); ++i) {
    const auto logits = again.Append(next);
    ASSERT_EQ(
        std::memcmp(logits->data(), outcome.logits.data() + i * kVocab, kVocab * sizeof(float)), 0)
        << "token " << i;
    next = std::span(outcome.ids).subspan(i, 1);
  }
}

TEST(Scheduler, EveryAnswerIsThatOfItsRequestAlone) {
  uint64_t hits = 0, preempted = 0, cancelled = 0;
  for (uint32_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    // One draw a statement: compilers evaluate arguments in orders of their own.
    const auto below = [&](size_t n) { return random() % n; };
    const std::optional<int64_t> window =
        seed % 3 == 0 ? std::nullopt : std::optional<int64_t>(seed % 3 == 1 ? 5 : 90);
    HashStepper stepper(window, seed % 2 == 0 ? 0 : 24 * kPage);
    const auto chunk = 16 + static_cast<int64_t>(below(100));
    SchedulerOptions options = Options(1 + below(8), chunk);
    options.positions = 400;
    if (seed % 5 == 0) options.prefix_bytes = 20 * kPage;
    Scheduler scheduler(stepper, options);
    const std::vector<int32_t> beginnings[] = {Ids(150, 1), Ids(70, 2), {}};
    constexpr size_t kRequests = 24;
    std::vector<Outcome> outcomes(kRequests);
    std::vector<Request> asked;
    std::vector<uint64_t> numbers;
    while (asked.size() < kRequests || scheduler.Step()) {
      for (size_t burst = below(4); burst > 0 && asked.size() < kRequests; --burst) {
        std::vector<int32_t> prompt = beginnings[below(3)];
        prompt.resize(
            std::max<size_t>(1, prompt.size() - below(std::min<size_t>(prompt.size() + 1, 3))), 7);
        const auto tail_seed = static_cast<uint32_t>(below(40));
        prompt = Joined(prompt, Ids(below(200), tail_seed));
        Request request = Ask(prompt, static_cast<int64_t>(below(60)), outcomes[asked.size()]);
        request.config.eos_token_id = {3};
        request.config.do_sample = below(2) == 0;
        request.config.temperature = 2.0;
        request.config.seed = below(5);
        if (below(3) == 0) request.config.repetition_penalty = 1.3;
        if (below(8) == 0) request.config.max_new_tokens.reset();
        asked.push_back(request);
        numbers.push_back(Submitted(scheduler, std::move(request)));
      }
      scheduler.Step();
      if (!numbers.empty() && below(12) == 0) scheduler.Cancel(numbers[below(numbers.size())]);
    }
    for (size_t i = 0; i < kRequests; ++i) {
      SCOPED_TRACE(i);
      ASSERT_EQ(outcomes[i].ends, 1);
      ExpectAsAlone(asked[i], outcomes[i], window, options.positions);
    }
    const SchedulerStatistics statistics = scheduler.statistics();
    EXPECT_EQ(statistics.submitted, kRequests);
    EXPECT_EQ(statistics.ended, kRequests);
    EXPECT_EQ(statistics.failed, 0u);
    EXPECT_EQ(statistics.running + statistics.waiting, 0u);
    hits += statistics.prefix_hits;
    preempted += statistics.preempted;
    cancelled += statistics.cancelled;
  }
  EXPECT_GT(hits, 100u);
  EXPECT_GT(preempted, 10u);
  EXPECT_GT(cancelled, 10u);
}

TEST(Scheduler, OfLongPromptsThatArriveTogetherTheFirstIsReadFirst) {
  HashStepper stepper;
  Scheduler scheduler(stepper, Options(4, 50));
  Outcome outcomes[4];
  for (uint32_t i = 0; i < 4; ++i) Submitted(scheduler, Ask(Ids(1000, i), 2, outcomes[i]));
  int steps = 0, first[4] = {};
  while (scheduler.Step()) {
    ++steps;
    for (size_t i = 0; i < 4; ++i)
      if (first[i] == 0 && !outcomes[i].ids.empty()) first[i] = steps;
  }
  EXPECT_LT(first[0], first[1]);
  EXPECT_LT(first[1], first[2]);
  EXPECT_LT(first[2], first[3]);
  EXPECT_LE(first[0], first[3] / 4 + 1);
}

TEST(Scheduler, AShortPromptNeedNotWaitForALongOneAndAStreamNeverStalls) {
  HashStepper stepper;
  Scheduler scheduler(stepper, Options(8, 64));
  Outcome stream, long_one, short_one;
  Submitted(scheduler, Ask(Ids(5, 0), 1000, stream));
  scheduler.Step();
  Submitted(scheduler, Ask(Ids(2000, 1), 1, long_one));
  scheduler.Step();
  Submitted(scheduler, Ask(Ids(15, 2), 3, short_one));
  scheduler.Step();
  EXPECT_EQ(short_one.ids.size(), 1u);
  while (!long_one.end) {
    const size_t before = stream.ids.size();
    scheduler.Step();
    EXPECT_EQ(stream.ids.size(), before + 1);
    int64_t ids = 0;
    for (const int64_t count : stepper.calls.back()) ids += count;
    EXPECT_LE(ids, 64 + 3);
  }
  // And the long one goes on however many short ones come.
  Outcome next;
  std::deque<Outcome> many;
  Submitted(scheduler, Ask(Ids(1000, 3), 1, next));
  uint32_t seed = 4;
  int steps = 0;
  for (; !next.end; ++steps) {
    Submitted(scheduler, Ask(Ids(16, seed++), 1, many.emplace_back()));
    scheduler.Step();
    ASSERT_LT(steps, 100);
  }
  EXPECT_LE(steps, 1000 / 48 + 2);
  scheduler.Stop();  // while those that it still serves are there
}

TEST(Scheduler, ACancelledRequestIsGoneBeforeTheNextStepWhereverItWas) {
  HashStepper stepper;
  SchedulerOptions options = Options(2, 32);
  options.prefix_bytes = 0;
  Scheduler scheduler(stepper, options);
  Outcome decoding, reading, waiting, last;
  const uint64_t a = Submitted(scheduler, Ask(Ids(4, 1), 1000, decoding));
  const uint64_t b = Submitted(scheduler, Ask(Ids(1000, 2), 1000, reading));
  const uint64_t c = Submitted(scheduler, Ask(Ids(4, 3), 1000, waiting));
  for (int i = 0; i < 3; ++i) scheduler.Step();
  EXPECT_GT(decoding.ids.size(), 0u);
  EXPECT_EQ(scheduler.statistics().running, 2u);
  EXPECT_EQ(scheduler.statistics().waiting, 1u);
  scheduler.Cancel(c);
  scheduler.Step();
  EXPECT_EQ(waiting.end->reason, StopReason::kCancelled);
  EXPECT_EQ(waiting.end->new_tokens, 0);
  scheduler.Cancel(b);
  scheduler.Step();
  EXPECT_EQ(reading.end->reason, StopReason::kCancelled);
  EXPECT_TRUE(reading.ids.empty());
  const size_t told = decoding.ids.size();
  scheduler.Cancel(a);
  scheduler.Cancel(a);
  EXPECT_TRUE(scheduler.Step());
  EXPECT_EQ(decoding.ids.size(), told);
  EXPECT_EQ(decoding.ends, 1);
  EXPECT_EQ(stepper.cache().bytes_in_use(), 0u);
  scheduler.Cancel(a);
  scheduler.Cancel(77);
  EXPECT_FALSE(scheduler.Step());
  // The caller's no within a token.
  Request request = Ask(Ids(4, 1), 1000, last);
  request.on_token = [](const NewToken&) { return false; };
  Submitted(scheduler, std::move(request));
  scheduler.Step();
  EXPECT_EQ(last.end->reason, StopReason::kCancelled);
  EXPECT_EQ(last.end->new_tokens, 1);
}

TEST(Scheduler, ACancelWhileIdleIsForgotten) {
  HashStepper stepper;
  Scheduler scheduler(stepper, Options());
  Outcome outcome;
  for (uint64_t number = 0; number < 4; ++number) scheduler.Cancel(number);
  Submitted(scheduler, Ask(Ids(4, 1), 3, outcome));  // the first: one of these numbers
  Finish(scheduler);
  ASSERT_TRUE(outcome.end);
  EXPECT_EQ(outcome.end->reason, StopReason::kLength);
  EXPECT_EQ(outcome.ids.size(), 3u);
}

TEST(Scheduler, AnErrorEndsItsOwnRequestOnly) {
  HashStepper stepper;
  stepper.poison = true;
  Scheduler scheduler(stepper, Options());
  std::vector<int32_t> clean(100, 1), bad(100, 2);
  bad[70] = kPoison;
  Outcome outcomes[3];
  Request asked[3] = {Ask(clean, 9, outcomes[0]), Ask(bad, 9, outcomes[1]),
                      Ask({5, 6}, 9, outcomes[2])};
  for (Request& request : asked) {
    request.config.suppress_tokens = {kPoison};
    Submitted(scheduler, request);
  }
  Finish(scheduler);
  ASSERT_TRUE(outcomes[1].end->error);
  EXPECT_EQ(outcomes[1].end->error->message, "the poison was read");
  ExpectAsAlone(asked[0], outcomes[0], {});
  ExpectAsAlone(asked[2], outcomes[2], {});
  // Nothing can be chosen: the sampler's error.
  Outcome none;
  Request request = Ask({1}, 9, none);
  for (int32_t id = 0; id < kVocab; ++id) request.config.suppress_tokens.push_back(id);
  Submitted(scheduler, std::move(request));
  Finish(scheduler);
  ASSERT_TRUE(none.end->error);
  EXPECT_EQ(scheduler.statistics().failed, 2u);
}

TEST(Scheduler, ARequestWaitsForMemoryAndOneThatNeverFitsSaysSo) {
  HashStepper stepper({}, 8 * kPage);  // four pages of two layers
  SchedulerOptions options = Options(8, 64);
  Scheduler scheduler(stepper, options);
  Outcome a, b, vast;
  Request first = Ask(Ids(120, 1), 30, a), second = Ask(Ids(120, 2), 30, b);
  Submitted(scheduler, first);
  Submitted(scheduler, second);
  Finish(scheduler);
  ExpectAsAlone(first, a, {});
  ExpectAsAlone(second, b, {});
  Submitted(scheduler, Ask(Ids(300, 3), 1, vast));
  Finish(scheduler);
  ASSERT_TRUE(vast.end->error);
  EXPECT_NE(vast.end->error->message.find("raise the limit"), std::string::npos);
  Outcome again;
  Request after = Ask(Ids(120, 1), 30, again);
  Submitted(scheduler, after);
  Finish(scheduler);
  ExpectAsAlone(after, again, {});
}

TEST(Scheduler, WhoIsSentBackForMemoryComesBeforeThoseWhoWait) {
  HashStepper stepper({}, 8 * kPage);
  Scheduler scheduler(stepper, Options(2, 128));
  Outcome first, second, third;
  std::vector<Request> asked = {Ask(Ids(120, 1), 60, first), Ask(Ids(120, 2), 60, second),
                                Ask(Ids(10, 3), 60, third)};
  for (const Request& request : asked) Submitted(scheduler, request);
  while (!first.end) ASSERT_TRUE(scheduler.Step());
  EXPECT_EQ(scheduler.statistics().preempted, 1u);
  EXPECT_FALSE(second.end);
  EXPECT_FALSE(second.ids.empty());
  EXPECT_TRUE(third.ids.empty());  // although it would fit beside the first
  Finish(scheduler);
  ExpectAsAlone(asked[0], first, {});
  ExpectAsAlone(asked[1], second, {});
  ExpectAsAlone(asked[2], third, {});
}

TEST(PrefixCache, WhatWasFoundIsUsedAndStaysLongest) {
  KvCache cache(std::vector<KvLayer>{{kPage, {}}});
  PrefixCache prefixes(cache, 100 * kPage);
  const auto insert = [&](const std::vector<int32_t>& ids) {
    KvSequence sequence = cache.NewSequence();
    ASSERT_TRUE(cache.Extend(sequence, static_cast<int64_t>(ids.size())));
    cache.Commit(sequence, static_cast<int64_t>(ids.size()));
    prefixes.Insert(ids, std::move(sequence));
  };
  insert({1, 2, 3});
  insert({4, 5, 6});
  EXPECT_EQ(prefixes.Find(std::vector<int32_t>{1, 2, 3, 9}).length, 3);
  EXPECT_EQ(prefixes.Find(std::vector<int32_t>{1, 2, 3}).length, 2);  // the last id must be run
  EXPECT_TRUE(prefixes.EvictOldest());
  EXPECT_EQ(prefixes.Find(std::vector<int32_t>{4, 5, 6, 9}).length, 0);
  EXPECT_EQ(prefixes.Find(std::vector<int32_t>{1, 2, 7}).length, 2);
  insert({1, 2, 3, 4});  // covers the shorter one
  EXPECT_EQ(prefixes.size(), 1u);
  insert({1, 2});
  EXPECT_EQ(prefixes.size(), 1u);
  EXPECT_TRUE(prefixes.EvictOldest());
  EXPECT_FALSE(prefixes.EvictOldest());
  EXPECT_EQ(cache.bytes_in_use(), 0u);
}

TEST(Scheduler, WhatIsNoRequestIsRefusedAtOnce) {
  HashStepper stepper;
  SchedulerOptions options = Options(1);
  options.queue = 2;
  options.positions = 100;
  Scheduler scheduler(stepper, options);
  Outcome outcome;
  EXPECT_FALSE(scheduler.Submit(Ask({}, 1, outcome)));
  EXPECT_EQ(scheduler.Submit(Ask({1, kVocab}, 1, outcome)).error().message,
            "token 1 of the prompt has id 50, but the vocabulary has ids 0 to 49");
  EXPECT_EQ(scheduler.Submit(Ask(Ids(101, 1), 1, outcome)).error().message,
            "the prompt has 101 tokens but the context holds 100");
  Outcome outcomes[4];
  Submitted(scheduler, Ask({1}, 1000, outcomes[0]));
  scheduler.Step();
  Submitted(scheduler, Ask({1}, 1, outcomes[1]));
  Submitted(scheduler, Ask({1}, 1, outcomes[2]));
  EXPECT_TRUE(scheduler.Check(Ask({1}, 1, outcomes[3])));
  EXPECT_FALSE(scheduler.Submit(Ask({1}, 1, outcomes[3])));
  Finish(scheduler);
  EXPECT_EQ(outcomes[0].end->reason, StopReason::kContextFull);
  EXPECT_EQ(outcomes[0].ids.size(), 100u);
  Outcome nothing;
  Submitted(scheduler, Ask({1}, 0, nothing));
  Submitted(scheduler, Ask({1}, 1, outcomes[3]));
  Finish(scheduler);
  EXPECT_EQ(nothing.end->reason, StopReason::kLength);
  EXPECT_TRUE(nothing.ids.empty());
  scheduler.Stop();
  EXPECT_FALSE(scheduler.Submit(Ask({1}, 1, outcomes[3])));
}

int64_t IdsRun(const HashStepper& stepper) {
  int64_t ids = 0;
  for (const auto& call : stepper.calls)
    for (const int64_t count : call) ids += count;
  return ids;
}

TEST(Scheduler, ACommonBeginningIsReadOnce) {
  for (const std::optional<int64_t> window :
       {std::optional<int64_t>(), std::optional<int64_t>(20)}) {
    HashStepper stepper(window);
    Scheduler scheduler(stepper, Options(8, 100));
    const std::vector<int32_t> common = Ids(500, 1);
    // At once, while the first is being read.
    Outcome outcomes[6];
    std::vector<Request> asked;
    for (uint32_t i = 0; i < 4; ++i) {
      asked.push_back(Ask(Joined(common, Ids(100, 10 + i)), 4, outcomes[i]));
      Submitted(scheduler, asked.back());
    }
    Finish(scheduler);
    EXPECT_EQ(IdsRun(stepper), 500 + 4 * (100 + 3));
    // And later, out of those that ended: also the very same prompt.
    asked.push_back(Ask(Joined(common, Ids(100, 20)), 4, outcomes[4]));
    Submitted(scheduler, asked.back());
    Finish(scheduler);
    EXPECT_EQ(IdsRun(stepper), 500 + 5 * (100 + 3));
    EXPECT_EQ(outcomes[4].end->cached_tokens, 500);
    asked.push_back(Ask(Joined(common, Ids(100, 20)), 4, outcomes[5]));
    Submitted(scheduler, asked.back());
    Finish(scheduler);
    EXPECT_EQ(outcomes[5].end->cached_tokens, 599);
    for (size_t i = 0; i < 6; ++i) ExpectAsAlone(asked[i], outcomes[i], window);
    EXPECT_EQ(scheduler.statistics().prefix_hits, 5u);
    EXPECT_EQ(scheduler.statistics().prefix_tokens, 4u * 500 + 599);
  }
}

TEST(Scheduler, WhereRequestsPartIsKeptAlthoughAWindowForgetsIt) {
  HashStepper stepper(20);
  Scheduler scheduler(stepper, Options(1, 1000));
  const std::vector<int32_t> common = Ids(300, 1);
  const auto cached = [&](uint32_t seed) {
    Outcome outcome;
    const Request asked = Ask(Joined(common, Ids(200, seed)), 4, outcome);
    Submitted(scheduler, asked);
    Finish(scheduler);
    ExpectAsAlone(asked, outcome, 20);
    return outcome.end->cached_tokens;
  };
  EXPECT_EQ(cached(2), 0);
  EXPECT_EQ(cached(3), 0);  // the window has gone past the place; now it is known
  EXPECT_EQ(cached(4), 300);
  EXPECT_EQ(cached(5), 300);
}

TEST(Scheduler, ATurnOfAConversationReadsOnlyWhatIsNew) {
  for (const std::optional<int64_t> window :
       {std::optional<int64_t>(), std::optional<int64_t>(20)}) {
    HashStepper stepper(window);
    Scheduler scheduler(stepper, Options());
    Outcome first, second;
    const std::vector<int32_t> prompt = Ids(200, 1);
    Submitted(scheduler, Ask(prompt, 100, first));
    Finish(scheduler);
    std::vector<int32_t> longer = Joined(prompt, first.ids);
    longer.resize(longer.size() - 10);  // a template writes the end differently
    longer = Joined(longer, Ids(30, 2));
    const Request asked = Ask(longer, 5, second);
    Submitted(scheduler, asked);
    Finish(scheduler);
    EXPECT_GE(second.end->cached_tokens, 290);
    ExpectAsAlone(asked, second, window);
  }
}

TEST(Scheduler, KeptSequencesStayUnderTheirLimitAndTheOldestGoes) {
  HashStepper stepper;
  SchedulerOptions options = Options();
  options.prefix_bytes = 12 * kPage;  // three of two pages in two layers
  Scheduler scheduler(stepper, options);
  const auto cached = [&](uint32_t seed) {
    Outcome outcome;
    Submitted(scheduler, Ask(Ids(100, seed), 2, outcome));
    Finish(scheduler);
    EXPECT_LE(scheduler.statistics().kept_bytes, options.prefix_bytes);
    EXPECT_LE(stepper.cache().bytes_in_use(), options.prefix_bytes);
    return outcome.end->cached_tokens;
  };
  for (const uint32_t seed : {1u, 2u, 3u}) EXPECT_EQ(cached(seed), 0);
  EXPECT_EQ(cached(1), 99);
  EXPECT_EQ(cached(4), 0);  // 2 goes
  EXPECT_EQ(cached(1), 99);
  EXPECT_EQ(cached(3), 99);
  EXPECT_EQ(cached(2), 0);
  EXPECT_EQ(scheduler.statistics().kept_sequences, 3u);
}

TEST(Scheduler, WhereNumbersDependOnTheCallAPromptIsOneCallAndNothingIsShared) {
  HashStepper stepper({}, 14 * kPage);
  SchedulerOptions options = Options(4, 16);
  options.whole_prompts = true;
  Scheduler scheduler(stepper, options);
  Outcome outcomes[3];
  std::vector<Request> asked;
  for (Outcome& outcome : outcomes) {
    asked.push_back(Ask(Ids(100, 1), 80, outcome));  // they outgrow the memory
    Submitted(scheduler, asked.back());
  }
  Finish(scheduler);
  for (size_t i = 0; i < 3; ++i) {
    ExpectAsAlone(asked[i], outcomes[i], {});
    EXPECT_EQ(outcomes[i].end->cached_tokens, 0);
  }
  int64_t whole = 0;
  for (const auto& call : stepper.calls)
    for (const int64_t count : call) {
      EXPECT_TRUE(count == 1 || count == 100) << count;
      whole += count == 100;
    }
  const uint64_t preempted = scheduler.statistics().preempted;
  EXPECT_GT(preempted, 0u);
  EXPECT_EQ(static_cast<uint64_t>(whole), 3 + preempted);
}

TEST(Scheduler, LogitsOfAPromptAndRulesOfACallerReachIt) {
  HashStepper stepper;
  Scheduler scheduler(stepper, Options(4, 16));
  const std::vector<int32_t> prompt = Ids(90, 1);
  Outcome plain, outcome;
  Submitted(scheduler, Ask(prompt, 1, plain));
  Request request = Ask(prompt, 5, outcome);
  std::vector<float> rows;
  request.on_prompt_logits = [&](int64_t position, std::span<const float> logits) {
    EXPECT_EQ(static_cast<size_t>(position) * kVocab, rows.size());
    rows.insert(rows.end(), logits.begin(), logits.end());
  };
  request.adjust = [&](std::span<const int32_t> ids, std::span<float> logits) {
    for (size_t v = 0; v < logits.size(); ++v)
      if (v != ids.size() % kVocab) logits[v] = -std::numeric_limits<float>::infinity();
  };
  Submitted(scheduler, std::move(request));
  Finish(scheduler);
  EXPECT_EQ(outcome.ids, (std::vector<int32_t>{40, 41, 42, 43, 44}));
  ASSERT_EQ(rows.size(), prompt.size() * kVocab);
  HashDecoder decoder({});
  for (size_t i = 0; i < prompt.size(); ++i) {
    const auto logits = decoder.Append(std::span(prompt).subspan(i, 1));
    ASSERT_EQ(std::memcmp(logits->data(), rows.data() + i * kVocab, kVocab * sizeof(float)), 0);
  }
  // What is told are the model's logits, not the adjusted ones.
  EXPECT_EQ(std::memcmp(outcome.logits.data(), plain.logits.data(), kVocab * sizeof(float)), 0);
}

TEST(Scheduler, TakesRequestsAndCancelsFromManyThreads) {
  HashStepper stepper(30, 60 * kPage);
  SchedulerOptions options = Options(4, 32);
  options.queue = 20;
  Scheduler scheduler(stepper, options);
  scheduler.Start();
  constexpr int kThreads = 4, kEach = 40;
  struct Asked {
    Request request;
    Outcome outcome;
    std::atomic<int> ends = 0;
  };
  std::vector<std::vector<std::unique_ptr<Asked>>> all(kThreads);
  std::atomic<uint64_t> refused = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<uint32_t>(t));
      std::vector<uint64_t> numbers;
      for (int i = 0; i < kEach; ++i) {
        auto asked = std::make_unique<Asked>();
        asked->request = Ask(Joined(Ids(80, static_cast<uint32_t>(random() % 2)),
                                    Ids(1 + random() % 40, static_cast<uint32_t>(random() % 9))),
                             static_cast<int64_t>(random() % 20), asked->outcome);
        Request request = asked->request;
        request.on_end = [&mine = *asked](const RequestEnd& end) {
          mine.outcome.end = end;
          ++mine.ends;
        };
        for (;;) {
          const Result<uint64_t> id = scheduler.Submit(request);
          if (id) {
            numbers.push_back(*id);
            break;
          }
          ++refused;
          std::this_thread::yield();
        }
        all[static_cast<size_t>(t)].push_back(std::move(asked));
        if (random() % 4 == 0) scheduler.Cancel(numbers[random() % numbers.size()]);
        EXPECT_LE(scheduler.statistics().running, options.slots);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(scheduler.WaitUntilIdle(std::chrono::seconds(60)));
  EXPECT_EQ(scheduler.statistics().ended, static_cast<uint64_t>(kThreads * kEach));
  scheduler.Stop();
  for (const auto& mine : all)
    for (const auto& asked : mine) {
      ASSERT_EQ(asked->ends, 1);
      ExpectAsAlone(asked->request, asked->outcome, 30);
    }
}

TEST(Scheduler, StoppingEndsWhatIsOpenAsCancelled) {
  HashStepper stepper;
  Outcome outcomes[4];
  {
    Scheduler scheduler(stepper, Options(2));
    scheduler.Start();
    for (Outcome& outcome : outcomes) {
      Request request = Ask({1}, 1000000, outcome);
      request.on_token = {};
      Submitted(scheduler, std::move(request));
    }
    EXPECT_FALSE(scheduler.WaitUntilIdle(std::chrono::milliseconds(5)));
  }
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.ends, 1);
    EXPECT_EQ(outcome.end->reason, StopReason::kCancelled);
  }
  EXPECT_EQ(stepper.cache().bytes_in_use(), 0u);
}

}  // namespace
}  // namespace lockstep

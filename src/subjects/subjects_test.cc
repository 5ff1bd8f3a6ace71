#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>

#include "formats/safetensors.h"
#include "subjects/engine_decoder.h"
#include "subjects/engine_subject.h"
#include "subjects/open_subject.h"
#include "subjects/reference_decoder.h"
#include "subjects/reference_subject.h"
#include "subjects/trace_subject.h"
#include "verify/verify.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const Progress kGoOn = [](std::string_view, int64_t, int64_t) { return true; };

fs::path Golden(const std::string& name) {
  return fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/models" / name;
}

// Multiplies the final norm of a copy of a checkpoint so far that fp32 logits are infinite.
void LoudEmbedding(const fs::path& folder) {
  const fs::path path = folder / "model.safetensors";
  const auto file = OpenSafetensors(path);
  ASSERT_TRUE(file) << file.error().message;
  std::vector<std::vector<float>> values;
  std::vector<TensorToWrite> tensors;
  for (const TensorInfo& tensor : file->tensors) {
    auto& floats = values.emplace_back(static_cast<size_t>(tensor.elements()));
    tensor.type->dequantize(tensor.data.data(), tensor.elements(), floats.data());
    if (tensor.name == "model.norm.weight")
      for (float& x : floats) x = 3e38f;
    tensors.push_back(
        {tensor.name, FindTensorType("F32"), tensor.shape, std::as_bytes(std::span(floats))});
  }
  ASSERT_TRUE(WriteSafetensors(path, tensors, file->metadata));
}

TEST(OpenSubject, ChoosesByContent) {
  ThreadPool pool(1);
  const auto model = OpenSubject(Golden("qwen2"), pool);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_TRUE((*model)->Can().any_prompt);
  const auto trace = OpenSubject(Golden("qwen2") / "golden.safetensors", pool);
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_FALSE((*trace)->Can().any_prompt);
  EXPECT_GE((*trace)->RecordedProbes().size(), 2u);
  const auto missing = OpenSubject("no/such/path", pool);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("no/such/path"), std::string::npos);
}

TEST(Verify, AModelMatchesWhatTransformersRecordedOfIt) {
  ThreadPool pool(1);
  for (const char* name : {"qwen2", "gemma3", "gpt2", "lfm2"}) {
    const auto model = OpenSubject(Golden(name), pool);
    const auto trace = OpenSubject(Golden(name) / "golden.safetensors", pool);
    ASSERT_TRUE(model && trace) << name;
    for (const bool swapped : {false, true}) {
      const auto v = Verify(swapped ? **trace : **model, swapped ? **model : **trace, {}, kGoOn);
      ASSERT_TRUE(v) << v.error().message;
      EXPECT_EQ(v->verdict, Verdict::kMatch) << name << ": " << v->sentence;
      const std::vector<Probe> probes = (*trace)->RecordedProbes();
      ASSERT_EQ(v->prompts.size(), probes.size());
      for (size_t i = 0; i < probes.size(); ++i) {
        // A reference that recorded its noise is asked, and not the candidate.
        EXPECT_EQ(v->prompts[i].noise_source,
                  swapped ? NoiseSource::kRecorded : NoiseSource::kMeasured);
        EXPECT_EQ(v->prompts[i].greedy_compared, probes[i].steps);
        EXPECT_TRUE(v->prompts[i].positions_max_abs);
      }
    }
  }
}

TEST(Verify, AnotherModelsRecordingDiffers) {
  ThreadPool pool(1);
  const auto model = OpenSubject(Golden("qwen2"), pool);
  const auto trace = OpenSubject(Golden("qwen3") / "golden.safetensors", pool);
  ASSERT_TRUE(model && trace);
  EXPECT_EQ(Verify(**model, **trace, {}, kGoOn)->verdict, Verdict::kDiffers);
}

TEST(Verify, PromptsThatARecordingDoesNotHaveAreRefused) {
  ThreadPool pool(1);
  const auto model = OpenSubject(Golden("qwen2"), pool);
  const auto trace = OpenSubject(Golden("qwen2") / "golden.safetensors", pool);
  ASSERT_TRUE(model && trace);
  VerifyOptions options;
  options.prompts.push_back({"p", "", {1, 2, 3}});
  for (const bool swapped : {false, true}) {
    const auto v = Verify(swapped ? **trace : **model, swapped ? **model : **trace, options, kGoOn);
    ASSERT_FALSE(v);
    EXPECT_EQ(v.error().code, ErrorCode::kUsage);
    EXPECT_NE(v.error().message.find("golden.safetensors"), std::string::npos);
  }
}

// Infinite noise would make an infinite tolerance, and everything would match.
TEST(Verify, AModelWhoseLogitsOverflowFailsInsteadOfMatching) {
  ThreadPool pool(1);
  const fs::path folder = fs::temp_directory_path() / fmt::format("lockstep-overflow-{}", getpid());
  fs::copy(Golden("qwen2"), folder);
  LoudEmbedding(folder);
  const auto loud = OpenSubject(folder, pool), quiet = OpenSubject(Golden("qwen2"), pool);
  ASSERT_TRUE(loud && quiet) << loud.error().message;
  for (const bool swapped : {false, true}) {
    const auto v = Verify(swapped ? **quiet : **loud, swapped ? **loud : **quiet, {}, kGoOn);
    ASSERT_TRUE(v) << v.error().message;
    EXPECT_EQ(v->verdict, Verdict::kSubjectFailed) << v->sentence;
    EXPECT_NE(v->sentence.find("no number"), std::string::npos) << v->sentence;
  }
  fs::remove_all(folder);
}

TEST(Verify, ModelsWithoutATokenizerRunIds) {
  ThreadPool pool(1);
  const auto a = OpenSubject(Golden("qwen2"), pool), b = OpenSubject(Golden("qwen2"), pool);
  ASSERT_TRUE(a && b);
  const auto v = Verify(**a, **b, {}, kGoOn);
  ASSERT_TRUE(v) << v.error().message;
  EXPECT_EQ(v->verdict, Verdict::kMatch);
  EXPECT_EQ(v->prompts.size(), 3u);
  EXPECT_FALSE(Verify(**a, **b, {.prompts = BuiltInPrompts()}, kGoOn));
}

TEST(ReferenceSubject, GivesHiddenStatesAsTransformersListsThem) {
  ThreadPool pool(1);
  const auto subject = ReferenceSubject::Open(Golden("qwen2"), pool);
  ASSERT_TRUE(subject) << subject.error().message;
  const auto trace = ReadTrace(Golden("qwen2") / "golden.safetensors");
  ASSERT_TRUE(trace) << trace.error().message;
  Probe probe{.name = "p", .ids = trace->prompts[0].ids, .steps = 2};
  probe.hidden = true;
  probe.taps = {{Tap::kQRope, -1}, {Tap::kLogits, -1}};
  const auto run = (*subject)->Run(probe, kGoOn);
  ASSERT_TRUE(run) << run.error().message;
  ASSERT_TRUE(run->hidden);
  ASSERT_EQ(run->hidden->shape, trace->prompts[0].hidden->shape);
  const double tolerance = 4 * Tolerance(*trace->prompts[0].noise);
  for (int64_t r = 0; r < run->hidden->num_rows(); ++r)
    EXPECT_LE(MaxAbsDifference(run->hidden->Row(r), trace->prompts[0].hidden->Row(r)), tolerance);
  EXPECT_EQ(run->taps.size(), (*subject)->model().spec.layers.size());
  EXPECT_EQ(run->taps.at("layers.0.q_rope").num_rows(), static_cast<int64_t>(probe.ids.size()));
  EXPECT_EQ(run->steps.size(), 2u);
}

TEST(ReferenceSubject, AsksWhetherToGoOn) {
  ThreadPool pool(1);
  const auto subject = ReferenceSubject::Open(Golden("qwen2"), pool);
  ASSERT_TRUE(subject);
  const auto run = (*subject)->Run({.name = "p", .ids = {1, 2}},
                                   [](std::string_view, int64_t, int64_t) { return false; });
  ASSERT_FALSE(run);
  EXPECT_TRUE(IsInterrupted(run.error()));
}

std::vector<float> LogitsOf(ReferenceDecoder& decoder, std::span<const int32_t> ids) {
  const auto logits = decoder.Append(ids);
  EXPECT_TRUE(logits);
  return logits ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>{};
}

TEST(ReferenceDecoder, AKeptPrefixGivesTheBitsOfAFreshRun) {
  ThreadPool pool(1);
  // Dynamic RoPE keeps nothing: its keys depend on the length of the call.
  for (const char* name : {"qwen2", "gemma3", "lfm2", "llama-rope-dynamic"}) {
    const auto model = LoadModel(Golden(name));
    ASSERT_TRUE(model) << model.error().message;
    const std::vector<int32_t> first = {1, 9, 8, 7, 6}, second = {1, 9, 8, 3, 3, 5};
    ReferenceDecoder reused(*model, pool);
    LogitsOf(reused, first);
    const size_t kept = reused.KeepCommonPrefix(second);
    EXPECT_EQ(kept, std::string(name) == "llama-rope-dynamic" ? 0u : 3u);
    ReferenceDecoder fresh(*model, pool);
    EXPECT_EQ(LogitsOf(reused, std::span(second).subspan(kept)), LogitsOf(fresh, second)) << name;
    // The whole prompt again: its last id is read once more, since it gives the logits.
    const size_t again = reused.KeepCommonPrefix(second);
    ReferenceDecoder other(*model, pool);
    EXPECT_EQ(LogitsOf(reused, std::span(second).subspan(again)), LogitsOf(other, second)) << name;
  }
}

TEST(ReferenceDecoder, AFailedCallLeavesTheSequenceAsItWas) {
  ThreadPool pool(1);
  const auto model = LoadModel(Golden("qwen2"));
  ASSERT_TRUE(model);
  ReferenceDecoder decoder(*model, pool);
  ASSERT_TRUE(decoder.Append(std::vector<int32_t>{1, 2, 3}));
  EXPECT_FALSE(decoder.Append(std::vector<int32_t>{4, 1'000'000}));
  EXPECT_EQ(decoder.position(), 3);
  EXPECT_FALSE(decoder.Append({}));
  EXPECT_EQ(decoder.position(), 3);
}

// `n` ids that do not repeat soon, other ones for every seed.
std::vector<int32_t> SomeIds(size_t n, int32_t seed) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < n; ++i)
    ids.push_back(static_cast<int32_t>((i * 37 + static_cast<size_t>(seed) * 11 + 3) % 90 + 1));
  return ids;
}

// What a conversation does: each turn repeats the last and its answer and goes on; then one that
// goes back to near the beginning, where the windows of gemma3 are long past.
TEST(EngineDecoder, AConversationGivesTheIdsOfFreshRuns) {
  for (const char* name : {"qwen2", "gemma3", "lfm2", "llama-rope-dynamic"}) {
    const auto model = LoadModel(Golden(name));
    ASSERT_TRUE(model) << model.error().message;
    const bool dynamic = DependsOnCallLength(model->spec);
    for (const bool drafts : {false, true}) {
      if (drafts && dynamic) continue;
      const auto open = [&] {
        auto decoder = EngineDecoder::Create(*model, {.threads = 2});
        EXPECT_TRUE(decoder) << decoder.error().message;
        return *std::move(decoder);
      };
      const auto answer = [&](RewindableDecoder& decoder, const std::vector<int32_t>& ids) {
        const size_t kept = decoder.KeepCommonPrefix(ids);
        EXPECT_EQ(decoder.position(), static_cast<int64_t>(kept));
        GenerationConfig config;
        config.max_new_tokens = 12;
        const auto result =
            Generate(decoder, std::span(ids).subspan(kept), config, {}, std::span(ids).first(kept));
        EXPECT_TRUE(result) << result.error().message;
        return std::pair(kept, result ? result->ids : std::vector<int32_t>{});
      };
      const auto engine = open();
      LookupDecoder drafting(*engine);
      RewindableDecoder& decoder = drafts ? static_cast<RewindableDecoder&>(drafting) : *engine;
      std::vector<int32_t> conversation = SomeIds(60, 1);
      size_t kept = 0;
      for (int turn = 0; turn < 3; ++turn) {
        const auto [held, ids] = answer(decoder, conversation);
        EXPECT_EQ(ids, answer(*open(), conversation).second) << name << " turn " << turn;
        if (turn > 0 && !dynamic) {
          EXPECT_GT(held, kept) << name;
        }
        kept = held;
        conversation.insert(conversation.end(), ids.begin(), ids.end());
        const auto question = SomeIds(7, turn);
        conversation.insert(conversation.end(), question.begin(), question.end());
      }
      conversation.resize(20);
      conversation.push_back(5);
      EXPECT_EQ(answer(decoder, conversation).second, answer(*open(), conversation).second) << name;
    }
  }
}

TEST(EngineDecoder, WhatDoesNotFitIsRefusedBeforeAnyOfItIsRead) {
  const auto model = LoadModel(Golden("qwen2"));
  ASSERT_TRUE(model);
  int64_t read = 0;
  const auto decoder = EngineDecoder::Create(*model, {.threads = 1}, [&](int64_t done, int64_t) {
    read = std::max(read, done);
    return true;
  });
  ASSERT_TRUE(decoder);
  ASSERT_GT((*decoder)->capacity(), 0);
  const auto logits =
      (*decoder)->Append(SomeIds(static_cast<size_t>((*decoder)->capacity()) + 1, 1));
  ASSERT_FALSE(logits);
  EXPECT_NE(logits.error().message.find("positions"), std::string::npos) << logits.error().message;
  EXPECT_EQ(read, 0);
  EXPECT_EQ((*decoder)->position(), 0);
}

TEST(EngineDecoder, StoppedWhileReadingItHoldsWhatItHeld) {
  const auto model = LoadModel(Golden("lfm2"));
  ASSERT_TRUE(model);
  bool go_on = true;
  const auto decoder =
      EngineDecoder::Create(*model, {.threads = 1}, [&](int64_t, int64_t) { return go_on; });
  ASSERT_TRUE(decoder);
  ASSERT_TRUE((*decoder)->Append(SomeIds(5, 1)));
  go_on = false;
  const auto stopped = (*decoder)->Append(SomeIds(5, 2));
  ASSERT_FALSE(stopped);
  EXPECT_TRUE(IsInterrupted(stopped.error()));
  EXPECT_EQ((*decoder)->position(), 5);
}

const EngineOptions kExact{.threads = 2, .activations = Activations::kF32, .kv = KvType::kF32};

TEST(EngineSubject, InFullPrecisionMatchesTheReferenceAndTransformers) {
  ThreadPool pool(1);
  for (const char* name : {"qwen2", "gemma3", "gpt2", "lfm2", "qwen3-moe", "deepseek-v3"}) {
    const auto engine = OpenSubject("engine:" + Golden(name).string(), pool, kExact);
    ASSERT_TRUE(engine) << engine.error().message;
    EXPECT_EQ((*engine)->Can().precision, Precision::kFull);
    for (const std::string& path :
         {"reference:" + Golden(name).string(), (Golden(name) / "golden.safetensors").string()}) {
      const auto reference = OpenSubject(path, pool);
      ASSERT_TRUE(reference) << reference.error().message;
      const auto v = Verify(**reference, **engine, {}, kGoOn);
      ASSERT_TRUE(v) << v.error().message;
      EXPECT_EQ(v->verdict, Verdict::kMatch) << path << ": " << v->sentence;
    }
  }
}

fs::path GgufGolden(const std::string& name) {
  return fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/gguf" / name;
}

TEST(EngineSubject, SaysWhichOfThePrecisionVerdictsItIs) {
  ThreadPool pool(1);
  struct Case {
    fs::path path;
    EngineOptions options;
    Verdict verdict;
  };
  const EngineOptions plain{.threads = 2};
  EngineOptions rounded_cache = kExact;
  rounded_cache.kv = KvType::kBF16;
  for (const Case& c : {Case{GgufGolden("llama-Q4_0.gguf"), plain, Verdict::kQuantizedActivations},
                        {GgufGolden("llama-Q4_0.gguf"), rounded_cache, Verdict::kPrecision},
                        {GgufGolden("llama-Q4_0.gguf"), kExact, Verdict::kMatch},
                        {Golden("gemma3"), rounded_cache, Verdict::kPrecision},
                        {Golden("mixtral"), rounded_cache, Verdict::kPrecision}}) {
    const auto reference = OpenSubject(c.path, pool);
    const auto engine = OpenSubject("engine:" + c.path.string(), pool, c.options);
    ASSERT_TRUE(reference && engine) << c.path;
    const auto v = Verify(**reference, **engine, {}, kGoOn);
    ASSERT_TRUE(v) << v.error().message;
    EXPECT_EQ(v->verdict, c.verdict) << c.path << ": " << v->sentence;
    // The engine as the reference: what it rounds explains as much from there.
    const auto swapped = Verify(**engine, **reference, {}, kGoOn);
    EXPECT_EQ(swapped->verdict, c.verdict) << c.path << ": " << swapped->sentence;
  }
}

// Rounding is no excuse for another model.
TEST(EngineSubject, AFaultIsADifferenceAtEveryPrecision) {
  ThreadPool pool(1);
  const fs::path path = GgufGolden("llama-Q4_0.gguf");
  const auto reference = OpenSubject(path, pool);
  ASSERT_TRUE(reference);
  const auto faults = {
      +[](ModelSpec& spec) {
        for (LayerSpec& layer : spec.layers) std::get<AttentionSpec>(layer.mixer).rope->theta *= 4;
      },
      +[](ModelSpec& spec) { spec.layers[0].mlp_pre_norm->eps *= 1e5; },
      +[](ModelSpec& spec) { std::get<AttentionSpec>(spec.layers[1].mixer).sliding_window = 3; },
  };
  int number = 0;
  for (const auto& fault : faults) {
    Model model = *LoadModel(path);
    fault(model.spec);
    for (const EngineOptions& options : {EngineOptions{.threads = 2}, kExact}) {
      const auto engine =
          EngineSubject::Create(ReferenceSubject::Create(model, TextModel{}, pool), options);
      ASSERT_TRUE(engine) << engine.error().message;
      const auto v = Verify(**reference, **engine, {}, kGoOn);
      ASSERT_TRUE(v);
      EXPECT_EQ(v->verdict, Verdict::kDiffers) << number << ": " << v->sentence;
    }
    ++number;
  }
}

// Dense, windowed, learned positions, convolutions, experts, latent attention.
TEST(Passages, EngineAndReferenceGiveTheSameHoweverTheirCacheIsFilled) {
  ThreadPool pool(1);
  for (const char* name : {"qwen2", "gemma3", "gpt2", "lfm2", "qwen3-moe", "deepseek-v3"}) {
    const auto reference = OpenSubject(Golden(name), pool);
    ASSERT_TRUE(reference) << reference.error().message;
    for (const std::string& path : {"engine:" + Golden(name).string(), Golden(name).string()}) {
      const auto candidate = OpenSubject(path, pool, kExact);
      ASSERT_TRUE(candidate) << candidate.error().message;
      const auto v = Verify(**reference, **candidate, {.longest = 100}, kGoOn);
      ASSERT_TRUE(v) << v.error().message;
      EXPECT_EQ(v->verdict, Verdict::kMatch) << path << ": " << v->sentence;
      std::map<Passage, int> taken;
      for (const PassageComparison& p : v->passages) {
        EXPECT_EQ(p.verdict, Verdict::kMatch) << path << ", " << p.how << ": " << p.sentence;
        ++taken[p.passage];
      }
      EXPECT_EQ(taken.size(), (*candidate)->Can().passages.size()) << path;
      for (const auto& [passage, times] : taken) EXPECT_EQ(times, 2) << PassageName(passage);
    }
  }
}

TEST(Passages, TheRowsOfEveryPositionAreThoseOfTheWholePrompt) {
  ThreadPool pool(1);
  for (const std::string& path :
       {"engine:" + Golden("gemma3").string(), Golden("gemma3").string()}) {
    const auto subject = OpenSubject(path, pool, kExact);
    ASSERT_TRUE(subject) << subject.error().message;
    Probe probe{.name = "p", .ids = SomeIds(12, 1), .steps = 3, .all_positions = true};
    const auto whole = (*subject)->Run(probe, kGoOn);
    ASSERT_TRUE(whole) << whole.error().message;
    probe.parts = {1, 3, 4, 4};
    probe.other = SomeIds(15, 2);
    for (const Passage passage : (*subject)->Can().passages) {
      probe.passage = passage;
      const auto run = (*subject)->Run(probe, kGoOn);
      ASSERT_TRUE(run) << PassageName(passage) << ": " << run.error().message;
      EXPECT_EQ(run->greedy, whole->greedy) << PassageName(passage);
      ASSERT_EQ(run->logits->shape, whole->logits->shape);
      for (int64_t r = 0; r < run->logits->num_rows(); ++r)
        EXPECT_LT(MaxAbsDifference(run->logits->Row(r), whole->logits->Row(r)), 1e-4)
            << PassageName(passage) << " at " << r;
    }
    probe.hidden = true;
    EXPECT_FALSE((*subject)->Run(probe, kGoOn));
  }
}

// Real bugs of caches (faults/), in the reference itself: none shows where a prompt comes whole and
// nothing is taken back, so that only the passage can tell.
TEST(Passages, AMaskThatOnlyKnowsWholePromptsDiffersInPartsAlone) {
  ThreadPool pool(1);
  const auto right = ReferenceSubject::Open(Golden("qwen2"), pool);
  ASSERT_TRUE(right) << right.error().message;
  const auto wrong = ReferenceSubject::Create(*LoadModel(Golden("qwen2")), TextModel{}, pool,
                                              ReferenceSubject::Precision::kFloat,
                                              {.causal_alignment = CausalAlignment::kStart});
  const auto v = Verify(**right, *wrong, {.steps = 1}, kGoOn);
  ASSERT_TRUE(v) << v.error().message;
  EXPECT_EQ(v->verdict, Verdict::kDiffers) << v->sentence;
  for (const PromptComparison& p : v->prompts) EXPECT_EQ(p.verdict, Verdict::kMatch);
  EXPECT_NE(v->sentence.find("differs only when the prompt comes in calls of 1 + 3"),
            std::string::npos)
      << v->sentence;
}

TEST(EngineSubject, HasNoIntermediatesAndSaysSo) {
  ThreadPool pool(1);
  const auto engine = OpenSubject("engine:" + Golden("qwen2").string(), pool, kExact);
  ASSERT_TRUE(engine);
  Probe probe{.name = "p", .ids = {1, 2}, .steps = 2};
  probe.taps = {{Tap::kQRope, -1}};
  const auto run = (*engine)->Run(probe, kGoOn);
  ASSERT_FALSE(run);
  EXPECT_NE(run.error().message.find("no intermediates"), std::string::npos);
  const auto trace =
      OpenSubject("engine:" + (Golden("qwen2") / "golden.safetensors").string(), pool);
  ASSERT_FALSE(trace);
  EXPECT_NE(trace.error().message.find("recorded trace"), std::string::npos);
}

}  // namespace
}  // namespace lockstep

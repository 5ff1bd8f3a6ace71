// Replays tests/golden/sampling/sequences: whole generations by a model whose logits are a table.
#include "engine/generate.h"

#include <gtest/gtest.h>

#include "engine/logits_processors.h"
#include "engine/sampling_goldens.h"
#include "engine/stop_strings.h"

namespace lockstep {
namespace {

// logits at position p = table[id[p]] + cycle[p mod P].
class TableDecoder : public Decoder {
 public:
  TableDecoder(std::vector<float> table, std::vector<float> cycle, size_t vocab_size,
               int64_t capacity = 0)
      : table_(std::move(table)),
        cycle_(std::move(cycle)),
        logits_(vocab_size),
        capacity_(capacity) {}

  Result<std::span<const float>> Append(std::span<const int32_t> ids) override {
    for (const int32_t id : ids) {
      const size_t turn = static_cast<size_t>(position_++) % (cycle_.size() / logits_.size());
      for (size_t v = 0; v < logits_.size(); ++v)
        logits_[v] = table_[static_cast<size_t>(id) * logits_.size() + v] +
                     cycle_[turn * logits_.size() + v];
    }
    return std::span<const float>(logits_);
  }
  int64_t position() const override { return position_; }
  int64_t capacity() const override { return capacity_; }

 private:
  std::vector<float> table_, cycle_, logits_;
  int64_t capacity_;
  int64_t position_ = 0;
};

TEST(Generate, AgreesWithTransformersOnEveryGoldenSequence) {
  for (const auto& folder : SamplingFolders()) {
    const GoldenTensors tensors(folder / "sequences.safetensors");
    const Json sequences = ReadJsonFile(folder / "sequences.json")["sequences"];
    int runs = 0, scored = 0;
    for (const Json& row : sequences) {
      SCOPED_TRACE(row["id"].get<std::string>());
      const std::string model = row["model"];
      const std::vector<float> table = tensors.Get(model + ".table");
      const std::vector<float> cycle = tensors.Get(model + ".cycle");
      const auto vocab = static_cast<size_t>(std::lround(std::sqrt(table.size())));
      ASSERT_EQ(vocab * vocab, table.size());
      Json json = row["config"];
      json["eos_token_id"] = row["eos_token_id"];
      json["max_new_tokens"] = row["max_new_tokens"];
      const GenerationConfig config = GoldenConfig(json);
      const bool batch = row.contains("batch_prompts");
      const Json prompts = batch ? row["batch_prompts"] : Json::array({row["prompt"]});
      const Json expected = batch ? row["generated_alone"] : Json::array({row["generated"]});
      for (size_t i = 0; i < prompts.size(); ++i) {
        TableDecoder decoder(table, cycle, vocab);
        const auto prompt = prompts[i].get<std::vector<int32_t>>();
        const auto got = Generate(decoder, prompt, config);
        ASSERT_TRUE(got) << got.error().message;
        EXPECT_EQ(got->ids, expected[i].get<std::vector<int32_t>>());
        ++runs;
        if (batch) continue;
        EXPECT_EQ(got->reason == StopReason::kEndToken, row["stopped_by"] == "eos");
        if (!row["has_scores"].get<bool>()) continue;
        // The processed scores of each step.
        const std::vector<float> scores = tensors.Get("scores." + row["id"].get<std::string>());
        ASSERT_EQ(scores.size(), got->ids.size() * vocab);
        TableDecoder again(table, cycle, vocab);
        std::vector<int32_t> ids = prompt;
        std::span<const int32_t> next = ids;
        for (size_t step = 0; step < got->ids.size(); ++step) {
          const auto logits = again.Append(next);
          std::vector<float> processed(logits->begin(), logits->end());
          ProcessLogits(config, ids, prompt.size(), processed);
          for (size_t v = 0; v < vocab; ++v)
            ASSERT_TRUE(SameScore(processed[v], scores[step * vocab + v]))
                << "step " << step << " token " << v << ": " << processed[v] << " but "
                << scores[step * vocab + v];
          ids.push_back(got->ids[step]);
          next = std::span<const int32_t>(ids).last(1);
        }
        ++scored;
      }
    }
    EXPECT_GT(runs, 100) << folder;
    EXPECT_GT(scored, 10) << folder;
  }
}

// 4 tokens, each followed by the next.
TableDecoder Counter(int64_t capacity = 0) {
  std::vector<float> table(16, 0.0f);
  for (size_t id = 0; id < 4; ++id) table[id * 4 + (id + 1) % 4] = 1;
  return TableDecoder(table, std::vector<float>(4, 0.0f), 4, capacity);
}

TEST(Generate, StopsAtTheCallersWishAtTheContextAndAtTheLength) {
  const std::vector<int32_t> prompt = {0};
  GenerationConfig config;
  config.max_new_tokens = 3;
  TableDecoder by_length = Counter();
  const auto length = Generate(by_length, prompt, config);
  EXPECT_EQ(length->ids, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(length->reason, StopReason::kLength);
  TableDecoder by_caller = Counter();
  const auto cancelled = Generate(by_caller, prompt, config, [](int32_t id) { return id != 2; });
  EXPECT_EQ(cancelled->ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(cancelled->reason, StopReason::kCancelled);
  TableDecoder by_context = Counter(2);
  const auto full = Generate(by_context, prompt, config);
  EXPECT_EQ(full->ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(full->reason, StopReason::kContextFull);
  TableDecoder small = Counter(2);
  EXPECT_FALSE(Generate(small, std::vector<int32_t>{0, 1, 2}, config));
  EXPECT_FALSE(Generate(small, {}, config));
  config.eos_token_id = {3, 2};
  TableDecoder by_end = Counter();
  EXPECT_EQ(Generate(by_end, prompt, config)->reason, StopReason::kEndToken);
}

// What comes out when the text goes in by pieces of n bytes.
std::string Through(StopStrings& stops, std::string_view text, size_t n) {
  std::string out;
  for (size_t i = 0; i < text.size(); i += n) out += stops.Feed(text.substr(i, n));
  return out + stops.Finish();
}

TEST(StopStrings, NeverLeakAByteOfAStopHoweverThePiecesAreCut) {
  struct Row {
    std::vector<std::string> stops;
    std::string_view text, shown;
  };
  const Row rows[] = {
      {{"END"}, "abc END def", "abc "}, {{"END"}, "abc EN", "abc EN"},
      {{"ENENX"}, "ENENENXq", "EN"},    {{"b", "abc"}, "zabd", "za"},
      {{"b", "abc"}, "zabcd", "z"},     {{"ab", "abc"}, "xabd", "x"},
      {{"ab", "abc"}, "xab", "x"},      {{"\n\nUser:"}, "hi\n\nUsers\n\nUser: q", "hi\n\nUsers"},
      {{""}, "text", "text"},           {{}, "text", "text"},
  };
  for (const Row& row : rows)
    for (size_t n = 1; n <= row.text.size(); ++n) {
      StopStrings stops(row.stops);
      EXPECT_EQ(Through(stops, row.text, n), row.shown) << row.text << " by " << n;
      EXPECT_EQ(stops.stopped_by().has_value(), row.shown != row.text) << row.text << " by " << n;
    }
}

TEST(StopStrings, HoldBackOnlyWhatMayBeginAStop) {
  StopStrings stops({"<end>"});
  EXPECT_EQ(stops.Feed("hello <"), "hello ");
  EXPECT_EQ(stops.Feed("b> <en"), "<b> ");
  EXPECT_EQ(stops.Feed("d>more"), "");
  EXPECT_EQ(stops.stopped_by(), "<end>");
  EXPECT_EQ(stops.Feed("again"), "");
}

}  // namespace
}  // namespace lockstep

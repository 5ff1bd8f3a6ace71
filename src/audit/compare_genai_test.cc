#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "audit/audit_testing.h"
#include "base/json.h"

namespace lockstep {
namespace {

// The healthy export of Gemma 2 with one value of its genai_config.json changed.
class Changed {
 public:
  Changed() {
    const Pair original = Look(kGemma / "checkpoint", kGemma / "genai");
    const RepairPlan healing = Must(PlanRepair(original.candidate, original.report));
    EXPECT_TRUE(WriteRepair(original.candidate, healing, scratch_ / "model"));
    std::ifstream in(scratch_ / "model" / "genai_config.json");
    json_ = Json::parse(in);
  }
  // Null takes the key away.
  void Set(const std::string& pointer, const Json& value) {
    const Json::json_pointer at(pointer);
    if (value.is_null())
      json_.at(at.parent_pointer()).erase(at.back());
    else
      json_[at] = value;
    std::ofstream(scratch_ / "model" / "genai_config.json") << json_.dump();
  }
  Pair LookAt() const { return Look(kGemma / "checkpoint", scratch_ / "model"); }
  Json Mended(const Pair& pair) const {
    const RepairPlan plan = Must(PlanRepair(pair.candidate, pair.report));
    EXPECT_TRUE(plan.left.empty()) << plan.left[0];
    const Status written = WriteRepair(pair.candidate, plan, scratch_ / "mended");
    EXPECT_TRUE(written) << written.error().message;
    const AuditReport report = Look(kGemma / "checkpoint", scratch_ / "mended").report;
    EXPECT_TRUE(report.findings.empty()) << All(report);
    std::ifstream in(scratch_ / "mended" / "genai_config.json");
    return Json::parse(in);
  }

 private:
  TestFolder scratch_;
  Json json_;
};

struct Change {
  const char* pointer;
  const char* wrong;  // JSON
  const char* right;  // as the repair writes it; null: no such key
};

const Change kChanges[] = {
    // The checkpoint's generation_config.json says nothing of these: transformers' defaults count.
    {"/search/do_sample", "true", "false"},
    {"/search/temperature", "0.7", "1.0"},
    {"/search/top_k", "20", "50"},
    {"/search/top_p", "0.9", "1.0"},
    {"/search/min_length", "12", "0"},
    {"/search/length_penalty", "0.5", "1.0"},
    {"/search/repetition_penalty", "1.3", "1.0"},
    {"/search/num_beams", "4", "1"},
    {"/search/no_repeat_ngram_size", "3", "0"},
    {"/search/batch_size", "2", "1"},
    {"/search/max_length", "64", "32"},
    {"/search/past_present_share_buffer", "false", "true"},
    {"/search/min_new_tokens", "3", "null"},  // no key of the runtime's
    {"/model/context_length", "16", "32"},
    {"/model/vocab_size", "41", "40"},
    {"/model/bos_token_id", "3", "1"},
    {"/model/pad_token_id", "2", "0"},
    {"/model/eos_token_id", "[2, 5]", "2"},
    {"/model/decoder/head_size", "12", "16"},
    {"/model/decoder/hidden_size", "32", "24"},
    {"/model/decoder/num_attention_heads", "4", "2"},
    {"/model/decoder/num_key_value_heads", "2", "1"},
    {"/model/decoder/num_hidden_layers", "3", "2"},
    {"/model/decoder/inputs/input_ids", "\"ids\"", "\"input_ids\""},
    {"/model/decoder/inputs/attention_mask", "\"mask\"", "\"attention_mask\""},
    {"/model/decoder/inputs/past_key_names", "\"past.%d.key\"", "\"past_key_values.%d.key\""},
    {"/model/decoder/inputs/past_value_names", "\"past_key_values.0.value\"",
     "\"past_key_values.%d.value\""},
    {"/model/decoder/outputs/logits", "\"scores\"", "\"logits\""},
    {"/model/decoder/outputs/present_key_names", "\"present.key\"", "\"present.%d.key\""},
    {"/model/decoder/outputs/present_value_names", "\"present.%d.key\"", "\"present.%d.value\""},
    {"/model/decoder/sliding_window/layers", "[0, 1]", "[0]"},
    {"/model/decoder/sliding_window/window_size", "4", "8"},
    {"/model/decoder/sliding_window/slide_key_value_cache", "true", "false"},
    {"/model/decoder/sliding_window/slide_inputs", "true", "false"},
};

TEST(CompareGenai, EveryWrongSettingIsFoundAndMended) {
  for (const Change& change : kChanges) {
    SCOPED_TRACE(change.pointer);
    Changed folder;
    folder.Set(change.pointer, Json::parse(change.wrong));
    const Pair pair = folder.LookAt();
    const std::vector<std::string> wheres = Wheres(pair.report);
    EXPECT_EQ(
        std::count(wheres.begin(), wheres.end(), std::string("genai_config.json") + change.pointer),
        1)
        << All(pair.report);
    const Json mended = folder.Mended(pair);
    const Json::json_pointer at(change.pointer);
    EXPECT_EQ(mended.contains(at) ? mended.at(at) : Json(nullptr), Json::parse(change.right));
  }
}

// A checkpoint that says nothing of top_k is run with transformers' own, which does cut.
TEST(CompareGenai, AnotherTopKThanTheDefaultIsNotSaidToBeAdded) {
  for (const auto& [key, value, words] :
       {std::tuple{"top_k", Json(0),
                   "top_k: another top_k than transformers' default; expected 50"},
        {"top_p", Json(0.9), "top_p: top_p was added: the checkpoint is run without"}}) {
    Changed folder;
    folder.Set(std::string("/search/") + key, value);
    const AuditReport report = folder.LookAt().report;
    EXPECT_NE(All(report).find(words), std::string::npos) << All(report);
  }
}

// What the runtime takes where a key is absent is as right as the key.
TEST(CompareGenai, AKeyThatIsAbsentMeansTheRuntimesDefault) {
  Changed folder;
  for (const char* key : {"do_sample", "temperature", "top_k", "top_p", "min_length", "num_beams",
                          "length_penalty", "repetition_penalty", "no_repeat_ngram_size"})
    folder.Set(std::string("/search/") + key, nullptr);
  for (const char* key : {"hidden_size", "num_attention_heads", "num_hidden_layers", "inputs",
                          "outputs", "num_key_value_heads"})
    folder.Set(std::string("/model/decoder/") + key, nullptr);
  const AuditReport report = folder.LookAt().report;
  EXPECT_TRUE(report.findings.empty()) << All(report);
}

TEST(CompareGenai, HarmlessValuesAreNoFinding) {
  Changed folder;
  folder.Set("/search/chunk_size", 4);
  folder.Set("/search/top_p", 0.0);
  folder.Set("/model/decoder/inputs/position_ids", "position_ids");  // that the graph has not
  folder.Set("/model/decoder/sliding_window/window_size", 24);
  const AuditReport report = folder.LookAt().report;
  EXPECT_TRUE(report.findings.empty()) << All(report);
}

TEST(CompareGenai, ProviderOptionsAreSaidNotToBeCompared) {
  Changed folder;
  folder.Set("/model/decoder/session_options/provider_options",
             Json::parse(R"([{"warp": {"precision": "low"}}])"));
  const AuditReport report = folder.LookAt().report;
  EXPECT_TRUE(report.findings.empty()) << All(report);
  bool said = false;
  for (const std::string& note : report.notes)
    said |= note.find("the provider options of warp were not compared") != std::string::npos;
  EXPECT_TRUE(said);
}

}  // namespace
}  // namespace lockstep

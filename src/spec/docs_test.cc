// docs/model_spec.md says of every fact what it means: each name of the field lists stands on the
// page as code.
#include <gtest/gtest.h>

#include <cctype>
#include <set>
#include <string>

#include "base/mapped_file.h"
#include "spec/field_list.h"

namespace lockstep {
namespace {

std::string Page() {
  const auto text = ReadTextFile(std::string(LOCKSTEP_SOURCE_DIR) + "/docs/model_spec.md");
  EXPECT_TRUE(text) << text.error().message;
  return text.value_or("");
}

// The words of the page's code spans.
std::set<std::string> CodeWords(const std::string& page) {
  std::set<std::string> words;
  bool code = false;
  std::string word;
  for (const char c : page) {
    if (code && (std::isalnum(static_cast<unsigned char>(c)) || c == '_')) {
      word += c;
      continue;
    }
    words.insert(std::move(word));
    word.clear();
    if (c == '`') code = !code;
  }
  return words;
}

template <typename... Structs>
void ExpectNamed(const std::set<std::string>& words) {
  const auto one = [&](const auto& field) {
    EXPECT_TRUE(words.contains(std::string(field.name))) << field.name;
  };
  const auto check = [&](const auto& fields) {
    std::apply([&](const auto&... field) { (one(field), ...); }, fields);
  };
  (check(kFieldsOf<Structs>), ...);
}

TEST(Docs, EveryFactIsExplained) {
  ExpectNamed<Scale, NormSpec, LinearScaling, DynamicScaling, Llama3Scaling, YarnScaling,
              LongRopeScaling, FrequencyFactors, RopeSpec, AttentionSpec, MlaSpec, ShortConvSpec,
              ClampedGlu, MlpSpec, RouterGroups, RouterSpec, SharedExpertSpec, MoeSpec, LayerSpec,
              LearnedPositions, EmbeddingSpec, LmHeadSpec, TokenIds, ModelSpec>(CodeWords(Page()));
}

TEST(Docs, EveryActivationAndScoringHasItsFormula) {
  const std::string page = Page();
  for (const char* name :
       {"`kSilu`", "`kGelu`", "`kGeluTanh`", "`kQuickGelu`", "`kRelu`", "`kRelu2`",
        "`kSoftmaxThenTopK`", "`kTopKThenSoftmax`", "`kSigmoidThenTopK`", "`kSparseMixer`"})
    EXPECT_NE(page.find(name), std::string::npos) << name;
  EXPECT_EQ(NamesOf<Activation>().size(), 6u);
  EXPECT_EQ(NamesOf<RouterScoring>().size(), 4u);
}

}  // namespace
}  // namespace lockstep

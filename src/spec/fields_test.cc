#include "spec/fields.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "spec/field_json.h"
#include "spec/field_list.h"
#include "spec/random_spec.h"
#include "spec/validate.h"

namespace lockstep {
namespace {

constexpr uint64_t kNumSeeds = 200;

std::vector<std::string> Paths(const std::vector<FieldDifference>& differences) {
  std::vector<std::string> paths;
  for (const FieldDifference& difference : differences) paths.push_back(difference.path);
  return paths;
}

// A spec whose every layer has rope, so that the examples of fields.h can be written.
ModelSpec PlainSpec() {
  ModelSpec spec;
  spec.architecture = "plain";
  spec.max_position_embeddings = 128;
  spec.embedding = {.vocab_size = 100, .hidden_size = 32};
  AttentionSpec attention{.num_attention_heads = 4, .num_key_value_heads = 2, .head_dim = 8};
  attention.rope = RopeSpec{.theta = 10000, .rotary_dim = 8};
  LayerSpec layer{.mixer_pre_norm = NormSpec{.eps = 1e-6}, .mixer = attention};
  layer.mlp = MlpSpec{.intermediate_size = 64};
  spec.layers.assign(5, layer);
  spec.final_norm = {.eps = 1e-6};
  return spec;
}

// Values that a field which holds `json` might take instead; SetField refuses those of other types.
std::vector<Json> Candidates(const Json& json) {
  if (json.is_boolean()) return {!json.get<bool>()};
  if (json.is_number_integer()) return {json.get<int64_t>() + 1};
  if (json.is_number()) return {json.get<double>() * 1.5 + 1};
  if (json.is_array()) {
    Json longer = json;
    longer.push_back(7);
    return {longer};
  }
  std::vector<Json> candidates = {nullptr,
                                  3,
                                  WriteJson(LearnedPositions{3}),
                                  WriteJson(NormSpec{}),
                                  WriteJson(RopeSpec{}),
                                  WriteJson(ClampedGlu{}),
                                  WriteJson(RouterGroups{}),
                                  WriteJson(SharedExpertSpec{}),
                                  WriteJson(RopeScaling{}),
                                  WriteJson(MixerSpec(ShortConvSpec{})),
                                  WriteJson(MixerSpec(MlaSpec{})),
                                  WriteJson(FeedForwardSpec(MlpSpec{})),
                                  WriteJson(FeedForwardSpec(MoeSpec{}))};
  const auto add = [&](const auto& names) {
    candidates.insert(candidates.end(), names.begin(), names.end());
  };
  if (json.is_string()) {
    add(NamesOf<Rounding>());
    add(NamesOf<NormKind>());
    add(NamesOf<RopeLayout>());
    add(NamesOf<QkNormScope>());
    add(NamesOf<Activation>());
    add(NamesOf<RouterScoring>());
    add(NamesOf<Wiring>());
  }
  return candidates;
}

TEST(Json, RoundTripKeepsEveryFact) {
  for (uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    const ModelSpec spec = RandomSpec(seed);
    const std::string text = ToJson(spec).dump();
    const auto json = ParseJson(text, "spec");
    ASSERT_TRUE(json) << json.error().message;
    const auto back = FromJson(*json, "spec");
    ASSERT_TRUE(back) << "seed " << seed << ": " << back.error().message;
    EXPECT_EQ(*back, spec) << "seed " << seed;
  }
}

TEST(Json, AbsentIsNullAndAVariantNamesItsKind) {
  const Json json = ToJson(PlainSpec());
  EXPECT_TRUE(json["layers"][0]["mixer"]["rope"]["scaling"].is_null());
  EXPECT_EQ(json["layers"][0]["mixer"].begin().key(), "kind");
  EXPECT_EQ(json["layers"][0]["mixer"]["kind"], "attention");
  EXPECT_EQ(json["layers"][0]["mlp"]["activation"], "silu");
}

TEST(Json, ExtremeNumbersKeepTheirBits) {
  for (const double value :
       {5e-324, 1.7976931348623157e308, 0.1, 1e22, 33554432.000000004, 1e-45}) {
    ModelSpec spec = PlainSpec();
    spec.final_norm.eps = value;
    spec.tokens.bos = std::numeric_limits<int64_t>::min();
    const auto back = FromJson(*ParseJson(ToJson(spec).dump(), "spec"), "spec");
    ASSERT_TRUE(back);
    EXPECT_EQ(*back, spec);
  }
}

TEST(Json, EveryBreachIsASentenceWithItsPath) {
  struct Breach {
    std::string_view
        pointer;  // RFC 6901, of the value that is replaced; a key ending in ! is removed
    std::string_view value;
    std::string_view message;
  };
  constexpr Breach kBreaches[] = {
      {"/layers/0/mixer/rope/theta", "\"x\"",
       "s.json: layers[0].mixer.rope.theta: expected a number, found the string \"x\""},
      {"/layers/0/mixer/rope/tehta", "1",
       "s.json: layers[0].mixer.rope: expected only the fields theta, rotary_dim, layout, scaling, "
       "found \"tehta\" (did you mean \"theta\"?)"},
      {"/layers/0/mixer/rope/theta!", "",
       "s.json: layers[0].mixer.rope.theta: expected a value (null where it is absent), found no "
       "such key"},
      {"/layers/0/mixer/kind", "\"mamba\"",
       "s.json: layers[0].mixer.kind: expected one of \"attention\", \"mla\", \"short_conv\", "
       "found "
       "the string \"mamba\""},
      {"/layers/0/mixer/kind!", "",
       "s.json: layers[0].mixer.kind: expected one of \"attention\", \"mla\", \"short_conv\", "
       "found "
       "no such key"},
      {"/layers/0/mixer/q_bias", "1",
       "s.json: layers[0].mixer.q_bias: expected true or false, found 1"},
      {"/embedding/vocab_size", "1.5",
       "s.json: embedding.vocab_size: expected a whole number of 64 bits, found 1.5"},
      {"/embedding/vocab_size", "18446744073709551615",
       "s.json: embedding.vocab_size: expected a whole number of 64 bits, found "
       "18446744073709551615"},
      {"/embedding/vocab_size", "null",
       "s.json: embedding.vocab_size: expected a whole number of 64 bits, found null"},
      {"/embedding", "[1,2]", "s.json: embedding: expected an object, found a list of 2"},
      {"/layers", "{}", "s.json: layers: expected a list, found an object"},
      {"/layers/1/mlp/activation", "\"swish\"",
       "s.json: layers[1].mlp.activation: expected one of \"silu\", \"gelu\", \"gelu_tanh\", "
       "\"quick_gelu\", \"relu\", \"relu2\", found the string \"swish\""},
      {"/architecture", "7", "s.json: architecture: expected a string, found 7"},
      {"", "3", "s.json: expected an object, found 3"},
  };
  for (const Breach& breach : kBreaches) {
    Json json = ToJson(PlainSpec());
    std::string pointer(breach.pointer);
    if (pointer.ends_with('!')) {
      pointer.pop_back();
      const size_t slash = pointer.rfind('/');
      json[Json::json_pointer(pointer.substr(0, slash))].erase(pointer.substr(slash + 1));
    } else {
      json[Json::json_pointer(pointer)] = Json::parse(breach.value);
    }
    const auto spec = FromJson(json, "s.json");
    ASSERT_FALSE(spec) << breach.message;
    EXPECT_EQ(spec.error().message, breach.message);
  }
}

TEST(Json, RunSpecRoundTrips) {
  const RunSpec run{.chunk_size = 7,
                    .padding = Padding{PaddingSide::kRight, 3},
                    .first_position = 2,
                    .cache = false,
                    .kv_dtype = KvDType::kBF16};
  const auto back = RunSpecFromJson(ToJson(run), "run");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, run);
  EXPECT_EQ(
      Paths(Diff(run, RunSpec{})),
      (std::vector<std::string>{"chunk_size", "padding", "first_position", "cache", "kv_dtype"}));
}

TEST(Diff, NamesTheOneFieldThatDiffers) {
  const ModelSpec a = PlainSpec();
  ModelSpec b = a;
  std::get<AttentionSpec>(b.layers[0].mixer).rope->theta = 1e6;
  ASSERT_EQ(Diff(a, b).size(), 1u);
  EXPECT_EQ(ToString(Diff(a, b)[0]), "layers[0].mixer.rope.theta: 10000 → 1000000");
}

TEST(Diff, OfEqualSpecsIsEmpty) {
  for (uint64_t seed = 0; seed < kNumSeeds; ++seed)
    EXPECT_TRUE(Diff(RandomSpec(seed), RandomSpec(seed)).empty());
}

TEST(Diff, NamesAnAbsentFactAsAWhole) {
  const ModelSpec a = PlainSpec();
  ModelSpec b = a;
  std::get<AttentionSpec>(b.layers[0].mixer).rope->scaling = LinearScaling{8};
  ASSERT_EQ(Diff(a, b).size(), 1u);
  EXPECT_EQ(ToString(Diff(a, b)[0]), "layers[0].mixer.rope.scaling: none → linear factor 8");
  b.layers[0].mixer = ShortConvSpec{3, true};
  ASSERT_EQ(Diff(a, b).size(), 1u);
  EXPECT_EQ(ToString(Diff(a, b)[0]),
            "layers[0].mixer: attention num_attention_heads 4, num_key_value_heads 2, head_dim 8, "
            "rope (theta 10000, rotary_dim 8) → short_conv kernel_size 3, bias");
}

TEST(Diff, OfLongListsShowsTheFirstElementThatDiffers) {
  ModelSpec a = PlainSpec();
  std::get<AttentionSpec>(a.layers[1].mixer).rope->scaling =
      FrequencyFactors{std::vector<double>(32, 1)};
  ModelSpec b = a;
  auto& factors =
      std::get<FrequencyFactors>(*std::get<AttentionSpec>(b.layers[1].mixer).rope->scaling).factors;
  factors[20] = 4;
  ASSERT_EQ(Diff(a, b).size(), 1u);
  EXPECT_EQ(
      ToString(Diff(a, b)[0]),
      "layers[1].mixer.rope.scaling.factors: 1 at [20] of 32 values → 4 at [20] of 32 values");
  b.tokens.eos = {1, 106};
  EXPECT_EQ(ToString(Diff(a, b)[1]), "tokens.eos: [] → [1, 106]");
}

TEST(Diff, OfDifferentDepthsNamesTheLayers) {
  const ModelSpec a = PlainSpec();
  ModelSpec b = a;
  b.layers.pop_back();
  EXPECT_EQ(Diff(a, b), (std::vector<FieldDifference>{{"layers", "5 entries", "4 entries"}}));
}

TEST(Diff, JoinsLayersWithTheSameDifference) {
  const ModelSpec a = PlainSpec();
  ModelSpec b = a;
  for (const size_t i : {0, 2, 3, 4})
    std::get<AttentionSpec>(b.layers[i].mixer).sliding_window = 512;
  std::get<AttentionSpec>(b.layers[1].mixer).sliding_window = 64;
  b.final_norm.eps = 1e-5;
  const auto joined = JoinLayers(Diff(a, b));
  ASSERT_EQ(joined.size(), 3u);
  EXPECT_EQ(ToString(joined[0]), "layers[0,2-4].mixer.sliding_window: none → 512");
  EXPECT_EQ(ToString(joined[1]), "layers[1].mixer.sliding_window: none → 64");
  EXPECT_EQ(ToString(joined[2]), "final_norm.eps: 1e-06 → 1e-05");
}

TEST(JoinNumbers, JoinsRunsOfThree) {
  EXPECT_EQ(JoinNumbers({}), "");
  EXPECT_EQ(JoinNumbers({0, 1, 3, 4, 5, 9}), "0,1,3-5,9");
}

// The property that faults and diagnosis stand on: an edit is exactly its difference.
TEST(SetField, ThenDiffNamesExactlyThatPath) {
  for (uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    const ModelSpec spec = RandomSpec(seed);
    ModelSpec edited = spec;
    for (const std::string& path : FieldPaths(spec)) {
      const auto value = GetField(spec, path);
      ASSERT_TRUE(value) << value.error().message;
      for (const Json& candidate : Candidates(*value)) {
        const bool accepted = SetField(edited, path, candidate.dump()).has_value();
        ASSERT_TRUE(accepted || edited == spec) << path << ": refused, but changed";
        if (edited == spec) continue;
        const std::vector<std::string> paths = Paths(Diff(spec, edited));
        // Within an optional or a variant that stays, the difference lies deeper.
        ASSERT_FALSE(paths.empty());
        if (!value->is_object() || candidate.is_null()) {
          ASSERT_EQ(paths, std::vector<std::string>{path}) << "seed " << seed;
        }
        for (const std::string& deeper : paths) ASSERT_TRUE(deeper.starts_with(path)) << deeper;
        break;
      }
      ASSERT_NE(edited, spec) << "no candidate fits " << path;
      ASSERT_TRUE(SetField(edited, path, value->dump()));
      ASSERT_EQ(edited, spec) << "setting the old value undoes it: " << path;
    }
  }
}

TEST(SetField, ReplacesAVariantAndAnOptionalAsAWhole) {
  ModelSpec spec = PlainSpec();
  ASSERT_TRUE(
      SetField(spec, "layers[1].mixer", R"({"kind":"short_conv","kernel_size":3,"bias":false})"));
  EXPECT_EQ(std::get<ShortConvSpec>(spec.layers[1].mixer), (ShortConvSpec{3, false}));
  ASSERT_TRUE(SetField(spec, "layers[0].mixer.rope.scaling", R"({"kind":"linear","factor":8})"));
  ASSERT_TRUE(SetField(spec, "layers[0].mixer.rope.scaling.factor", "4"));
  EXPECT_EQ(std::get<AttentionSpec>(spec.layers[0].mixer).rope->scaling,
            RopeScaling(LinearScaling{4}));
  ASSERT_TRUE(SetField(spec, "layers[0].mixer.rope", "null"));
  EXPECT_FALSE(std::get<AttentionSpec>(spec.layers[0].mixer).rope);
}

TEST(SetField, EditsSeveralLayersAtOnce) {
  ModelSpec spec = PlainSpec();
  const ModelSpec before = spec;
  ASSERT_TRUE(SetField(spec, "layers[0,2-4].mixer.sliding_window", "16"));
  EXPECT_EQ(JoinLayers(Diff(before, spec)),
            (std::vector<FieldDifference>{{"layers[0,2-4].mixer.sliding_window", "none", "16"}}));
  ASSERT_TRUE(SetField(spec, "layers[*].mixer.sliding_window", "null"));
  EXPECT_EQ(spec, before);
}

TEST(SetField, RefusesWhatIsNotThereAndChangesNothing) {
  struct Bad {
    std::string_view path, value, message;
  };
  constexpr Bad kBad[] = {
      {"layers[0].mixer.rope.tehta", "1",
       "layers[0].mixer.rope: expected one of the fields theta, rotary_dim, layout, scaling, found "
       "\"tehta\" (did you mean \"theta\"?)"},
      {"layers[0].mixer.rope.scaling.factor", "1",
       "layers[0].mixer.rope.scaling: expected it to be present, for it to have \".factor\"; it is "
       "absent (set it as a whole)"},
      {"layers[5].residual.value", "1",
       "layers: expected an index from 0 to 4 in brackets, such as [0], [0,2-4] or [*], found "
       "\"5\""},
      {"layers[0-5].residual.value", "1",
       "layers: expected an index from 0 to 4 in brackets, such as [0], [0,2-4] or [*], found "
       "\"0-5\""},
      {"layers.residual", "1",
       "layers: expected an index from 0 to 4 in brackets, such as [0], [0,2-4] or [*], found "
       "\".residual\""},
      {"final_norm.eps.x", "1",
       "final_norm.eps: expected the path to end here (this is one value), found \".x\""},
      {"final_norm.eps", "true", "final_norm.eps: expected a number, found true"},
      {"", "1", "the spec: expected an object, found 1"},
  };
  for (const Bad& bad : kBad) {
    ModelSpec spec = PlainSpec();
    const Status status = SetField(spec, bad.path, bad.value);
    ASSERT_FALSE(status) << bad.path;
    EXPECT_EQ(status.error().message, bad.message);
    EXPECT_EQ(spec, PlainSpec());
  }
  for (const std::string_view path :
       {"layers[", "layers[]", "layers[1,0].wiring", "layers[2-1].wiring", "layers[-1].wiring",
        "layers[99999999999999999999].wiring", "layers[0]]", "layers[0]wiring2", ".", "..", "[0]",
        "layers[0]..wiring", "layers[*"}) {
    ModelSpec spec = PlainSpec();
    EXPECT_FALSE(SetField(spec, path, "\"parallel\"")) << path;
    EXPECT_EQ(spec, PlainSpec());
  }
  ModelSpec spec = PlainSpec();
  EXPECT_FALSE(SetField(spec, "final_norm.eps", "1 2"));
}

TEST(FieldPaths, HoldEachFactOnce) {
  for (uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    const std::vector<std::string> paths = FieldPaths(RandomSpec(seed));
    EXPECT_EQ(std::set<std::string>(paths.begin(), paths.end()).size(), paths.size());
  }
  const std::vector<std::string> paths = FieldPaths(PlainSpec());
  for (const char* path :
       {"architecture", "embedding.positions", "layers[4].mixer", "layers[0].mixer.rope",
        "layers[0].mixer.rope.theta", "layers[0].mixer.rope.scaling",
        "layers[0].mixer_pre_norm.eps", "layers[3].residual.rounding", "tokens.eos"})
    EXPECT_EQ(std::count(paths.begin(), paths.end(), path), 1) << path;
}

TEST(Describe, OfGemmaReadsAsWritten) {
  ModelSpec spec = PlainSpec();
  spec.architecture = "gemma3_text";
  spec.embedding.scale = {.value = 25.25, .rounding = Rounding::kBF16};
  const NormSpec norm{.eps = 1e-6, .weight_offset = 1};
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.mixer_pre_norm = layer.mixer_post_norm = layer.mlp_pre_norm = layer.mlp_post_norm = norm;
    auto& a = std::get<AttentionSpec>(layer.mixer);
    a.q_norm = a.k_norm = norm;
    a.query_scale.value = 0.0625;
    if (i != 3) a.sliding_window = 512;
    if (i == 3) a.rope->theta = 1e6;
  }
  spec.tokens = {.bos = 2, .eos = {1, 106}, .pad = 0};
  EXPECT_EQ(
      Describe(spec),
      "gemma3_text: 5 layers, max_position_embeddings 128\n"
      "embedding: vocab_size 100, hidden_size 32, scale 25.25 rounded to bf16\n"
      "layers 0-2,4:\n"
      "  mixer_pre_norm, mixer_post_norm, mlp_pre_norm, mlp_post_norm: rms, eps 1e-06, "
      "weight_offset 1\n"
      "  mixer: attention num_attention_heads 4, num_key_value_heads 2, head_dim 8, "
      "query_scale 0.0625,\n"
      "      rope (theta 10000, rotary_dim 8), sliding_window 512,\n"
      "      q_norm (rms, eps 1e-06, weight_offset 1), k_norm (rms, eps 1e-06, weight_offset 1)\n"
      "  mlp: dense intermediate_size 64, silu\n"
      "layer 3: as layer 0, but\n"
      "  mixer.rope.theta: 10000 → 1000000\n"
      "  mixer.sliding_window: 512 → none\n"
      "final_norm: rms, eps 1e-06\n"
      "tokens: bos 2, eos [1, 106], pad 0\n");
}

TEST(Describe, FitsATerminalAndShowsEveryEdit) {
  for (uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    const ModelSpec spec = RandomSpec(seed);
    const std::string text = Describe(spec);
    size_t start = 0;
    while (start < text.size()) {
      const size_t end = text.find('\n', start);
      const std::string line = text.substr(start, end - start);
      const auto columns =
          std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; });
      EXPECT_LE(columns, 100) << line;
      start = end + 1;
    }
    // Two specs that differ must not read the same.
    for (const std::string& path : FieldPaths(spec)) {
      const Json value = *GetField(spec, path);
      if (!value.is_boolean() && !value.is_number()) continue;
      ModelSpec edited = spec;
      ASSERT_TRUE(SetField(edited, path, Candidates(value)[0].dump()));
      EXPECT_NE(Describe(edited), text) << "seed " << seed << ", " << path;
    }
  }
}

TEST(RandomSpec, ReachesEveryAlternative) {
  std::set<std::string> seen;
  const auto see = [&](const auto& value) { seen.emplace(NameOf(value)); };
  for (uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    const ModelSpec spec = RandomSpec(seed);
    EXPECT_EQ(spec, RandomSpec(seed));
    see(spec.embedding.scale.rounding);
    for (const LayerSpec& layer : spec.layers) {
      see(layer.wiring);
      see(layer.mixer);
      see(layer.mlp);
      if (layer.mixer_pre_norm) see(layer.mixer_pre_norm->kind);
      if (const auto* mlp = std::get_if<MlpSpec>(&layer.mlp)) see(mlp->activation);
      if (const auto* moe = std::get_if<MoeSpec>(&layer.mlp)) see(moe->router.scoring);
      if (const auto* a = std::get_if<AttentionSpec>(&layer.mixer)) {
        see(a->qk_norm_scope);
        if (a->rope) see(a->rope->layout);
        if (a->rope && a->rope->scaling) see(*a->rope->scaling);
      }
    }
  }
  const auto expect_all = [&](const auto& names) {
    for (const std::string_view name : names) EXPECT_TRUE(seen.contains(std::string(name))) << name;
  };
  expect_all(NamesOf<Rounding>());
  expect_all(NamesOf<Wiring>());
  expect_all(NamesOf<MixerSpec>());
  expect_all(NamesOf<FeedForwardSpec>());
  expect_all(NamesOf<NormKind>());
  expect_all(NamesOf<Activation>());
  expect_all(NamesOf<RouterScoring>());
  expect_all(NamesOf<QkNormScope>());
  expect_all(NamesOf<RopeLayout>());
  expect_all(NamesOf<RopeScaling>());
}

}  // namespace
}  // namespace lockstep

// The tables of cosines and sines that feed each layer (rope_tables.h) against the spec's RoPE.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "audit/findings.h"
#include "audit/rope_tables.h"
#include "reference/rope.h"
#include "spec/fields.h"
#include "spec/rope_facts.h"

namespace lockstep {
namespace {

std::string ScalingText(const std::optional<RopeScaling>& scaling) {
  if (!scaling) return "no scaling";
  if (const auto* linear = std::get_if<LinearScaling>(&*scaling))
    return fmt::format("linear factor {:.6g}", linear->factor);
  if (const auto* dynamic = std::get_if<DynamicScaling>(&*scaling))
    return fmt::format("dynamic factor {:.6g}", dynamic->factor);
  if (const auto* llama3 = std::get_if<Llama3Scaling>(&*scaling))
    return fmt::format("llama3 factor {:.6g}", llama3->factor);
  if (const auto* yarn = std::get_if<YarnScaling>(&*scaling))
    return fmt::format("yarn factor {:.6g}, attention factor {:.6g}", yarn->factor,
                       yarn->attention_factor);
  if (std::holds_alternative<LongRopeScaling>(*scaling)) return "longrope";
  return "factors of its own for each frequency";
}

std::string RopeText(const RopeSpec& rope) {
  return fmt::format("theta {:g}, {}", rope.theta, ScalingText(rope.scaling));
}

bool IsLongRope(const RopeSpec& rope) {
  return rope.scaling && std::holds_alternative<LongRopeScaling>(*rope.scaling);
}

class Ropes {
 public:
  Ropes(const ModelSpec& spec, const Graph& graph, AuditReport& report, Collector& out)
      : spec_(spec), graph_(graph), report_(report), out_(out) {}

  void Run() {
    const size_t layers = std::min(report_.decoder.layers.size(), spec_.layers.size());
    for (size_t i = 0; i < layers; ++i) {
      const auto& found = report_.decoder.layers[i].attention;
      if (!found) continue;
      One(static_cast<int>(i), FindRope(spec_.layers[i]), *found);
    }
    if (unread_ > 0)
      report_.notes.push_back(
          fmt::format("the RoPE tables of {} layers are made while the graph runs, and were not "
                      "compared",
                      unread_));
  }

 private:
  // Tables that were compared with a RoPE, and are its.
  struct Sound {
    std::optional<ConstantView> cos, sin;
    RopeSpec rope;
    int64_t first = 0, length = 1;
  };

  void One(int layer, const RopeSpec* expected, const FoundAttention& found) {
    if (!found.rope_read) {
      ++unread_;
      return;
    }
    if ((expected != nullptr) != found.rope.has_value()) {
      Presence(layer, expected, found);
      return;
    }
    if (expected == nullptr) return;
    const FoundRope& rope = *found.rope;
    if (rope.interleaved != (expected->layout == RopeLayout::kInterleaved)) {
      RawFinding raw{.kind = FindingKind::kRope, .layer = layer, .path = "mixer.rope.layout"};
      raw.what = "other elements of a head turn together";
      raw.expected = rope.interleaved ? "halves" : "pairs";
      raw.found = rope.interleaved ? "pairs" : "halves";
      raw.edit_json = rope.interleaved ? "\"interleaved\"" : "\"half\"";
      // Queries and keys, where each has an operator of its own.
      for (const int node : {rope.node, found.rope_nodes[1]})
        if (node >= 0)
          raw.patch.attributes.push_back({.node = Source(node),
                                          .name = std::string(rope.interleaved_attribute),
                                          .value = int64_t{rope.interleaved ? 0 : 1}});
      out_.Add(std::move(raw));
    }
    Compare(layer, *expected, found, 0, 1);
    const auto* longrope =
        expected->scaling ? std::get_if<LongRopeScaling>(&*expected->scaling) : nullptr;
    if (rope.long_row > 0)
      Compare(layer, *expected, found, rope.long_row,
              longrope != nullptr ? longrope->original_max_position_embeddings + 1 : 1);
  }

  size_t Source(int node) const { return static_cast<size_t>(graph_.node(node).source); }

  std::string RopeJson(int layer, const RopeSpec& rope) const {
    ModelSpec edited = spec_;
    MixerSpec& mixer = edited.layers[static_cast<size_t>(layer)].mixer;
    if (auto* attention = std::get_if<AttentionSpec>(&mixer)) attention->rope = rope;
    if (auto* mla = std::get_if<MlaSpec>(&mixer)) mla->rope = rope;
    const auto json = GetField(edited, fmt::format("layers[{}].mixer.rope", layer));
    return json ? json->dump() : "null";
  }

  void Presence(int layer, const RopeSpec* expected, const FoundAttention& found) {
    RawFinding raw{.kind = FindingKind::kRope, .layer = layer, .path = "mixer.rope"};
    if (expected != nullptr) {
      raw.what = "queries and keys are not rotated";
      raw.expected = RopeText(*expected);
      raw.found = "none";
      raw.edit_json = "null";
    } else {
      raw.what = "a rotation where there is none";
      raw.expected = "none";
      raw.found = "a rotation";
      for (const LayerSpec& other : spec_.layers)
        if (const RopeSpec* rope = FindRope(other)) {
          RopeSpec turned = *rope;
          turned.layout = found.rope->interleaved ? RopeLayout::kInterleaved : RopeLayout::kHalf;
          raw.edit_json = RopeJson(layer, turned);
        }
    }
    if (!SetPresence(expected, found, raw.patch))
      raw.how_to = "export again: the graph has no rotation that could be lent or taken away";
    out_.Add(std::move(raw));
  }

  // Takes the rotation away, or lends that of a layer that turns as this one should.
  bool SetPresence(const RopeSpec* expected, const FoundAttention& found, OnnxPatch& patch) const {
    const size_t node = Source(found.node);
    if (expected == nullptr) {
      if (found.gqa && found.rope_nodes[0] < 0) {
        patch.attributes.push_back({.node = node, .name = "do_rotary", .value = int64_t{0}});
        return true;
      }
      for (const int rotates : found.rope_nodes) {
        // The operator's input takes the place of its output, for everybody who reads it.
        if (rotates < 0) return false;
        const int out = graph_.node(rotates).Out(0);
        for (const int reader : graph_.Consumers(out))
          for (size_t s = 0; s < graph_.node(reader).in.size(); ++s)
            if (graph_.node(reader).in[s] == out)
              patch.inputs.push_back({.node = Source(reader),
                                      .slot = s,
                                      .value = graph_.Name(graph_.node(rotates).In(0))});
      }
      return true;
    }
    for (size_t i = 0; i < report_.decoder.layers.size() && i < spec_.layers.size(); ++i) {
      const auto& donor = report_.decoder.layers[i].attention;
      const RopeSpec* theirs = FindRope(spec_.layers[i]);
      if (!donor || !donor->rope || theirs == nullptr || !(*theirs == *expected)) continue;
      if (found.gqa && donor->gqa && donor->rope_nodes[0] < 0) {
        if (graph_.node(found.node).in.size() < 9) continue;
        patch.attributes.push_back({.node = node, .name = "do_rotary", .value = int64_t{1}});
        for (const size_t slot : {size_t{7}, size_t{8}})
          patch.inputs.push_back({.node = node,
                                  .slot = slot,
                                  .value = graph_.Name(graph_.node(donor->node).In(slot))});
        return true;
      }
      if (LendOperators(*donor, found, patch)) return true;
    }
    return false;
  }

  bool LendOperators(const FoundAttention& donor, const FoundAttention& found,
                     OnnxPatch& patch) const {
    OnnxPatch lent;
    for (size_t slot = 0; slot < 2; ++slot) {
      const int like = donor.rope_nodes[slot];
      const int value = graph_.node(found.node).In(slot);
      // The operator stands directly before attention, as the lender's does.
      if (like < 0 || value == kNoValue ||
          graph_.node(donor.node).In(slot) != graph_.node(like).Out(0))
        return false;
      const int producer = graph_.Producer(value);
      if (producer < 0) return false;
      OnnxPatch::Node fresh{.after = Source(producer),
                            .op_type = std::string(graph_.node(like).op),
                            .domain = graph_.node(like).microsoft ? "com.microsoft" : "",
                            .outputs = {graph_.Name(value) + "_rotated"}};
      for (size_t s = 0; s < graph_.node(like).in.size(); ++s) {
        const int in = graph_.node(like).in[s];
        if (s > 0 && graph_.Producer(in) >= producer) return false;
        fresh.inputs.push_back(s == 0 ? graph_.Name(value) : in == kNoValue ? "" : graph_.Name(in));
      }
      for (const char* name : {"num_heads", "rotary_embedding_dim", "interleaved"})
        if (graph_.Has(like, name)) fresh.attributes.emplace_back(name, graph_.Int(like, name, 0));
      lent.inputs.push_back(
          {.node = Source(found.node), .slot = slot, .value = graph_.Name(value) + "_rotated"});
      lent.nodes.push_back(std::move(fresh));
    }
    patch = std::move(lent);
    return true;
  }

  void Compare(int layer, const RopeSpec& expected, const FoundAttention& found, int64_t first,
               int64_t length) {
    // Layers that share tables and want the same of them: once is enough.
    const auto sound = [&](const Sound& one) {
      return one.cos == found.rope->cos && one.sin == found.rope->sin && one.first == first &&
             one.length == length && one.rope == expected;
    };
    if (std::any_of(sound_.begin(), sound_.end(), sound)) return;
    const auto is_sound = [&] {
      sound_.push_back({found.rope->cos, found.rope->sin, expected, first, length});
    };
    const auto table = ReadTable(graph_, *found.rope, first);
    if (!table) {
      ++unread_;
      return;
    }
    RawFinding raw{.kind = FindingKind::kRope, .layer = layer, .path = "mixer.rope"};
    raw.expected = RopeText(expected);
    if (table->half * 2 != expected.rotary_dim) {
      raw.path = "mixer.rope.rotary_dim";
      raw.what = "another part of each head turns";
      raw.expected = std::to_string(expected.rotary_dim);
      raw.found = std::to_string(table->half * 2);
      raw.edit_json = raw.found;
      if (first != 0 || !SetRotaryDim(layer, expected, found, *table, length, raw.patch))
        raw.how_to = "export again with this rotary dimension";
      out_.Add(std::move(raw));
      return;
    }
    // Frequencies are not read off numbers of 16 bits: all entries are what is expected, rounded.
    if (table->storage != Rounding::kNone && EarlyError(*table, expected, length) < kSameEntry) {
      is_sound();
      return;
    }
    const bool frequencies = SameFrequencies(*table, expected, length);
    const bool amplitude = SameAmplitude(*table, expected);
    if (frequencies && amplitude && EarlyError(*table, expected, length) < kSameEntry) {
      is_sound();
      return;
    }
    // Row 1 of rounded entries says other frequencies, which nobody meant.
    if (const auto entries = RoundedEntries(*table, expected, length)) {
      raw.what = *entries;
      raw.found = "other entries";
    } else if (frequencies && amplitude) {
      const auto rounded = RoundedAngles(*table, expected, length);
      raw.what = rounded.value_or("the tables of cosines and sines differ after their first rows");
      raw.found = "other entries";
    } else if (const auto shift = ShiftOf(*table, expected, length)) {
      const auto by = std::abs(*shift);
      raw.what = fmt::format(
          "the tables of cosines and sines are shifted by {}: each row is that of {}",
          by == 1 ? "a position" : fmt::format("{} positions", by),
          by == 1
              ? *shift > 0 ? std::string("the next position") : std::string("the position before")
              : fmt::format("the position {} {}", by, *shift > 0 ? "further on" : "before"));
      raw.expected = "row p for position p";
      raw.found = fmt::format("row p for position p {} {}", *shift > 0 ? "+" : "-", by);
    } else if (const auto factors = FactorsOf(*table, expected);
               amplitude && factors && IsLongRope(expected)) {
      raw.path = length == 1 ? "mixer.rope.scaling.short_factor" : "mixer.rope.scaling.long_factor";
      raw.what = length == 1 ? "other frequencies" : "other frequencies past the original context";
      raw.found = "other factors";
      raw.edit_json = Json(*factors).dump();
    } else if (const auto named = Explain(layer, *table, expected, length)) {
      raw.found = RopeText(named->rope);
      raw.what = named->what;
      raw.edit_json = RopeJson(layer, named->rope);
    } else if (const auto rounded = RoundedAngles(*table, expected, length)) {
      raw.what = *rounded;
      raw.found = "other entries";
      if (const auto frequencies = FactorsAsRope(*table, expected))
        raw.edit_json = RopeJson(layer, *frequencies);
    } else if (const auto frequencies = FactorsAsRope(*table, expected)) {
      raw.what = "other frequencies";
      raw.found = RopeText(*frequencies);
      raw.edit_json = RopeJson(layer, *frequencies);
    } else if (!std::isfinite(table->amplitude)) {
      raw.what = "the tables of cosines and sines hold numbers that are not finite";
      raw.found = "NaN or infinite entries";
    } else {
      raw.what = "other factors on cos and sin";
      raw.found = fmt::format("a factor of {:.6g}", table->amplitude);
    }
    if (!SetTable(layer, expected, found, first, *table, length, raw.patch))
      raw.how_to = "export again: other layers read the same tables, and rightly";
    out_.Add(std::move(raw));
  }

  // Tables of another width, for every layer that reads them.
  bool SetRotaryDim(int layer, const RopeSpec& expected, const FoundAttention& found,
                    const StoredRopeTable& table, int64_t length, OnnxPatch& patch) const {
    const FoundRope& rope = *found.rope;
    const int64_t half = expected.rotary_dim / 2;
    for (size_t i = 0; i < report_.decoder.layers.size() && i < spec_.layers.size(); ++i) {
      const auto& other = report_.decoder.layers[i].attention;
      const RopeSpec* wanted = FindRope(spec_.layers[i]);
      if (other && other->rope && other->rope->cos &&
          other->rope->cos->tensor == rope.cos->tensor && wanted != nullptr &&
          !(*wanted == expected))
        return false;
    }
    const auto* of = std::get_if<AttentionSpec>(&spec_.layers[static_cast<size_t>(layer)].mixer);
    if (of == nullptr) return false;
    const AttentionSpec& attention = *of;
    const RopeTable right(expected, 0, table.rows, length);
    for (const bool cos : {true, false}) {
      const ConstantView& view = cos ? *rope.cos : *rope.sin;
      const OnnxTensor& tensor = graph_.model().tensors()[static_cast<size_t>(view.tensor)];
      if (tensor.dims != view.shape) return false;
      const std::vector<float>& values = cos ? right.cos : right.sin;
      auto bytes = EncodeFinite(std::vector<double>(values.begin(), values.end()), tensor.type);
      if (!bytes) return false;
      patch.tensors.push_back({.name = tensor.name,
                               .bytes = *std::move(bytes),
                               .dims = std::vector<int64_t>{table.rows, half}});
    }
    for (const int node : found.rope_nodes)
      if (node >= 0)
        patch.attributes.push_back(
            {.node = Source(node),
             .name = "rotary_embedding_dim",
             .value = expected.rotary_dim == attention.head_dim ? 0 : expected.rotary_dim});
    return true;
  }

  struct Named {
    RopeSpec rope;
    std::string what;
  };

  std::optional<Named> Explain(int layer, const StoredRopeTable& table, const RopeSpec& expected,
                               int64_t length) const {
    const auto fits = [&](const RopeSpec& rope) {
      return SameFrequencies(table, rope, length) && SameAmplitude(table, rope);
    };
    RopeSpec tried = expected;
    tried.scaling.reset();
    if (expected.scaling && fits(tried)) return Named{tried, "the scaling is missing"};
    if (expected.scaling && std::holds_alternative<YarnScaling>(*expected.scaling)) {
      tried = expected;
      auto& yarn = std::get<YarnScaling>(*tried.scaling);
      yarn.truncate = !yarn.truncate;
      if (fits(tried))
        return Named{tried, yarn.truncate
                                ? "the ends of yarn's ramp are rounded to whole dimensions"
                                : "the ends of yarn's ramp are not rounded to whole dimensions"};
    }
    for (size_t i = 0; i < spec_.layers.size(); ++i) {
      const RopeSpec* other = FindRope(spec_.layers[i]);
      if (other == nullptr || *other == expected || static_cast<int>(i) == layer) continue;
      if (fits(*other)) return Named{*other, "the RoPE of other layers"};
      tried = expected;
      tried.scaling = other->scaling;
      if (fits(tried)) return Named{tried, "the scaling of other layers"};
      tried = *other;
      tried.scaling = expected.scaling;
      if (fits(tried)) return Named{tried, "theta of other layers"};
    }
    // theta and one factor from the first and the last frequency.
    const std::vector<double>& inverse = table.inverse;
    const size_t last = inverse.size() - 1;
    if (inverse.front() > 0 && inverse[last] > 0) {
      RopeSpec fit = expected;
      fit.scaling.reset();
      const double factor = 1 / inverse.front();
      const double loose = table.uncertainty / inverse[last];
      if (last > 0) {
        const double exponent =
            2.0 * static_cast<double>(last) / static_cast<double>(expected.rotary_dim);
        fit.theta = std::pow(inverse.front() / inverse[last], 1 / exponent);
        if (std::abs(fit.theta - std::round(fit.theta)) < 1e-4 * fit.theta)
          fit.theta = std::round(fit.theta);
        if (std::abs(fit.theta - expected.theta) < (1e-5 + 1e2 * loose) * expected.theta)
          fit.theta = expected.theta;
      }
      if (std::abs(factor - 1) > 1e-6 + table.uncertainty / inverse.front()) {
        const double neat = std::round(factor * 1e4) / 1e4;
        fit.scaling = LinearScaling{std::abs(neat - factor) < 1e-5 * factor ? neat : factor};
      }
      if (fits(fit))
        return Named{fit, fit.theta == expected.theta ? "another scaling" : "another theta"};
    }
    if (SameFrequencies(table, expected, length)) {
      tried = expected;
      if (auto* yarn = tried.scaling ? std::get_if<YarnScaling>(&*tried.scaling) : nullptr)
        yarn->attention_factor = table.amplitude;
      else if (!tried.scaling)  // yarn by a factor of 1 leaves the frequencies alone
        tried.scaling = YarnScaling{.attention_factor = table.amplitude,
                                    .original_max_position_embeddings =
                                        std::max<int64_t>(spec_.max_position_embeddings, 1)};
      if (fits(tried)) return Named{tried, "another factor on cos and sin"};
    }
    return std::nullopt;
  }

  // What no other words say: a factor of its own for each frequency.
  static std::optional<RopeSpec> FactorsAsRope(const StoredRopeTable& table,
                                               const RopeSpec& expected) {
    if (!(std::abs(table.amplitude - 1) <= 1e-6)) return std::nullopt;
    auto factors = FactorsOf(table, expected);
    if (!factors) return std::nullopt;
    RopeSpec rope = expected;
    rope.scaling = FrequencyFactors{*std::move(factors)};
    return rope;
  }

  // By which each frequency of theta is divided.
  static std::optional<std::vector<double>> FactorsOf(const StoredRopeTable& table,
                                                      const RopeSpec& expected) {
    std::vector<double> factors;
    for (size_t i = 0; i < table.inverse.size(); ++i) {
      if (!(table.inverse[i] > 0)) return std::nullopt;
      factors.push_back(std::pow(expected.theta, -2.0 * static_cast<double>(i) /
                                                     static_cast<double>(expected.rotary_dim)) /
                        table.inverse[i]);
    }
    return factors;
  }

  bool SetTable(int layer, const RopeSpec& expected, const FoundAttention& found, int64_t first,
                const StoredRopeTable& table, int64_t length, OnnxPatch& patch) const {
    const FoundRope& rope = *found.rope;
    for (size_t i = 0; i < report_.decoder.layers.size() && i < spec_.layers.size(); ++i) {
      const auto& other = report_.decoder.layers[i].attention;
      const RopeSpec* wanted = FindRope(spec_.layers[i]);
      if (!other || !other->rope || !other->rope->cos || static_cast<int>(i) == layer) continue;
      const bool shared = other->rope->cos->tensor == rope.cos->tensor;
      if (wanted == nullptr || *wanted == expected) {
        // A layer that has it right lends its tables.
        if (!shared && found.gqa && other->gqa && wanted != nullptr) {
          const auto theirs = ReadTable(graph_, *other->rope, first);
          if (theirs && SameFrequencies(*theirs, expected, length) &&
              SameAmplitude(*theirs, expected)) {
            for (const size_t slot : {size_t{7}, size_t{8}})
              patch.inputs.push_back({.node = Source(found.node),
                                      .slot = slot,
                                      .value = graph_.Name(graph_.node(other->node).In(slot))});
            return true;
          }
        }
        continue;
      }
      if (shared) return false;
    }
    const RopeTable right(expected, 0, table.rows, length);
    for (const bool cos : {true, false}) {
      ConstantView rows = cos ? *rope.cos : *rope.sin;
      rows.offset += first * rows.strides[0];
      rows.shape[0] = table.rows;
      auto tensor = PatchOf(graph_, rows, cos ? right.cos : right.sin);
      if (!tensor) return false;
      patch.tensors.push_back(*std::move(tensor));
    }
    return true;
  }

  const ModelSpec& spec_;
  const Graph& graph_;
  AuditReport& report_;
  Collector& out_;
  int unread_ = 0;
  std::vector<Sound> sound_;
};

}  // namespace

void CompareRopes(const ModelSpec& spec, const Graph& graph, AuditReport& report, Collector& out) {
  Ropes(spec, graph, report, out).Run();
}

}  // namespace lockstep

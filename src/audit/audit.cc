#include "audit/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "audit/account.h"
#include "audit/exchanges.h"
#include "audit/findings.h"
#include "audit/weight_sums.h"
#include "reference/rope.h"
#include "spec/fields.h"
#include "spec/rope_facts.h"

namespace lockstep {

Result<AuditReport> Audit(const Model& reference, const OnnxModel& candidate) {
  AuditReport report;
  Collector collector;
  const Account account = TakeAccount(candidate, reference.spec, report.notes);
  const Graph& graph = *account.graph;
  report.decoder = account.decoder;
  const bool operators = !report.decoder.layers.empty();
  CompareWeights(reference, graph, report, collector);
  const bool located = std::any_of(report.weights.begin(), report.weights.end(), [](const auto& w) {
    return w.second.state != WeightState::kNotFound;
  });
  if (!operators && !located)
    return UnsupportedError(
        "{}: no attention operator was found (GroupQueryAttention, Attention or "
        "MultiHeadAttention), and none of the checkpoint's weights (an export of another model?)",
        candidate.path().string());
  TellStrangers(account, reference.spec, report, collector);
  // Attention that is built of elementary operators is not read.
  if (operators) {
    CompareFacts(reference, graph, report, collector);
    CompareWiring(reference.spec, graph, report, collector);
  } else {
    report.notes.push_back(
        "attention is built of elementary operators: its window, scale and RoPE were not compared");
    report.not_compared = {"attention masks", "position ids", "how caches go in and out"};
  }
  CompareIndices(reference, graph, report, collector);
  const auto genai = ReadGenaiConfig(candidate, report.notes);
  CompareReach(reference, candidate, graph, genai ? &*genai : nullptr, report, collector);
  if (genai) CompareGenai(reference, candidate, graph, *genai, report, collector);
  CompareTextFiles(reference, candidate, collector);
  report.findings = std::move(collector).Join();
  return report;
}

namespace {

Rows OfView(const WeightView& view) {
  return {view.rows, view.cols,
          [&view](int64_t row, float* out) { view.ReadRows(row, 1, out, view.cols); }};
}

WeightResult CompareViews(const WeightView& a, const WeightView& b) {
  WeightResult result{.state = WeightState::kEqual};
  if (a.rows != b.rows || a.cols != b.cols) {
    result.state = WeightState::kDiffers;
    result.correlation = 0;
    return result;
  }
  const Rows ref = OfView(a), got = OfView(b);
  const Sums sums = SumsOf(ref, got);
  result.max_abs = sums.max_abs;
  result.not_finite = sums.not_finite_b;
  result.reference_not_finite = sums.not_finite_a;
  // What a GGUF writer folds into a norm and the binding takes out again rounds once.
  if (sums.max_abs <= kFolded * std::max(1.0, sums.largest)) return result;
  result.correlation = sums.correlation();
  result.bits = static_cast<int>(b.type->bits_per_weight());
  result.block = b.type->block_elements;
  if (sums.not_finite_a > 0 || sums.not_finite_b > 0) {
    // They are in no sum: the rest may be zeros, or rounded, and says nothing.
    result.state = WeightState::kDiffers;
  } else if (sums.largest_b == 0) {
    result.state = WeightState::kZeroed;
  } else if (sums.bf16 || sums.fp16) {
    result.state = WeightState::kRounded;
    result.rounding = sums.bf16 ? Rounding::kBF16 : Rounding::kFP16;
  } else {
    const bool follows = !b.type->plain() && AreSoundCodes(sums, result.bits) &&
                         EveryBlockFollows(ref, got, result.bits, result.block);
    result.state = follows ? WeightState::kQuantized : WeightState::kDiffers;
  }
  return result;
}

// One checkpoint states a fact in other words than the other: RoPE bands as a factor for each
// frequency, numbers as fp32. What decides the same logits is the same.
bool SameRope(const RopeSpec& a, const RopeSpec& b, int64_t context) {
  if (a.rotary_dim != b.rotary_dim || a.layout != b.layout) return false;
  constexpr int64_t kRows = 64;
  for (const int64_t length : {kRows, std::max(kRows, context)}) {
    const RopeTable x(a, 0, kRows, length), y(b, 0, kRows, length);
    for (size_t i = 0; i < x.cos.size(); ++i)
      if (!(std::abs(x.cos[i] - y.cos[i]) <= 1e-5F && std::abs(x.sin[i] - y.sin[i]) <= 1e-5F))
        return false;
  }
  return true;
}

void SetRope(LayerSpec& layer, const RopeSpec& rope) {
  if (auto* attention = std::get_if<AttentionSpec>(&layer.mixer)) attention->rope = rope;
  if (auto* mla = std::get_if<MlaSpec>(&layer.mixer)) mla->rope = rope;
}

ModelSpec InWordsOf(const ModelSpec& reference, ModelSpec spec) {
  const size_t layers = std::min(reference.layers.size(), spec.layers.size());
  const int64_t context = reference.max_position_embeddings;
  for (size_t i = 0; i < layers; ++i) {
    const RopeSpec* expected = FindRope(reference.layers[i]);
    const RopeSpec* found = FindRope(spec.layers[i]);
    if (expected != nullptr && found != nullptr && SameRope(*expected, *found, context))
      SetRope(spec.layers[i], *expected);
  }
  // No logit follows from these.
  spec.architecture = reference.architecture;
  spec.max_position_embeddings = reference.max_position_embeddings;
  spec.tokens = reference.tokens;
  return spec;
}

bool SameAsFloats(const Json& a, const Json& b) {
  return a.is_number() && b.is_number() &&
         static_cast<float>(a.get<double>()) == static_cast<float>(b.get<double>());
}

}  // namespace

Result<AuditReport> Audit(const Model& reference, const Model& candidate) {
  AuditReport report;
  Collector collector;
  const ModelSpec theirs_in_words = InWordsOf(reference.spec, candidate.spec);
  std::vector<FieldDifference> differences;
  for (const FieldDifference& difference : Diff(reference.spec, theirs_in_words)) {
    const auto expected = GetField(reference.spec, difference.path);
    const auto found = GetField(theirs_in_words, difference.path);
    if (!expected || !found || !SameAsFloats(*expected, *found)) differences.push_back(difference);
  }
  for (const FieldDifference& difference : JoinLayers(differences)) {
    RawFinding raw{.kind = FindingKind::kStructure, .path = difference.path};
    raw.what = "another fact";
    raw.expected = difference.a.empty() ? "nothing" : difference.a;
    raw.found = difference.b.empty() ? "nothing" : difference.b;
    const std::string first = difference.path;
    // The value as an edit writes it, from the first of the layers.
    std::string one = first;
    if (const size_t open = one.find('['), close = one.find(']');
        open != std::string::npos && close != std::string::npos) {
      const size_t end = one.find_first_of(",-]", open);
      one = one.substr(0, end) + one.substr(close);
    }
    if (const auto json = GetField(candidate.spec, one)) raw.edit_json = json->dump();
    raw.how_to = "convert again from the checkpoint";
    collector.Add(std::move(raw));
  }
  for (const WeightSlot& slot : RequiredWeights(reference.spec)) {
    const WeightView* theirs = candidate.weights.Find(slot.id);
    WeightResult result{.state = WeightState::kMissing};
    if (theirs != nullptr) result = CompareViews(*reference.weights.Find(slot.id), *theirs);
    if (theirs != nullptr && result.state == WeightState::kDiffers && result.not_finite == 0) {
      std::vector<NamedRows> others;
      for (const auto& [id, view] : reference.weights.all())
        if (view.rows == theirs->rows && view.cols == theirs->cols)
          others.push_back({id, OfView(view)});
      result.other = OwnerOf(OfView(*theirs), slot.id, !theirs->type->plain(), others);
      if (result.other) result.state = WeightState::kOther;
    }
    report.weights.emplace(slot.id, result);
  }
  std::set<WeightId> told;
  for (ExchangeFinding& finding : TellExchanges(report.weights)) {
    for (const Exchange& exchange : finding.exchanges)
      told.insert(exchange.begin(), exchange.end());
    finding.raw.how_to = "convert again from the checkpoint";
    collector.Add(std::move(finding.raw));
  }
  for (const WeightSlot& slot : RequiredWeights(reference.spec)) {
    const WeightView* theirs = candidate.weights.Find(slot.id);
    const WeightResult& result = report.weights.at(slot.id);
    if (result.state == WeightState::kEqual || told.contains(slot.id)) continue;
    RawFinding raw{.layer = slot.id.layer};
    raw.expected = "the reference's numbers";
    WeightId plain = slot.id;
    plain.layer = -1;
    raw.path = ToString(plain);
    WeightEdit edit{.role = slot.id.role, .part = slot.id.part, .expert = slot.id.expert};
    switch (result.state) {
      case WeightState::kQuantized:
        raw.kind = FindingKind::kQuantized;
        raw.what = "quantized weights";
        raw.found = fmt::format("{} codes that follow them", theirs->type->name);
        raw.how_to = "nothing: fewer bits are a choice, not a fault";
        break;
      case WeightState::kRounded:
        raw.kind = FindingKind::kQuantized;
        raw.what = fmt::format("rounded to {}", theirs->type->name);
        raw.found = fmt::format("them in {}", theirs->type->name);
        raw.how_to = "nothing: fewer bits are a choice, not a fault";
        break;
      case WeightState::kZeroed:
        raw.what = "all zeros";
        raw.found = "zeros";
        raw.weight_edit = edit;
        break;
      case WeightState::kMissing:
        raw.what = "the weight is not there";
        raw.found = "nothing";
        raw.weight_edit = edit;
        break;
      case WeightState::kOther:
        raw.what = fmt::format("holds {}", ToString(*result.other));
        raw.found = fmt::format("those of {}", ToString(*result.other));
        if (result.other->part == slot.id.part) {
          edit.change = WeightChange::kTake;
          edit.other_role = result.other->role;
          edit.other_layer = result.other->layer;
          edit.other_expert = result.other->expert;
          raw.weight_edit = edit;
        }
        break;
      default:
        raw.what = "holds other numbers";
        raw.found = result.not_finite + result.reference_not_finite > 0
                        ? fmt::format("{} that are NaN or infinite, and {} in the reference itself",
                                      result.not_finite, result.reference_not_finite)
                        : fmt::format("correlation {:.3f}", result.correlation);
        break;
    }
    if (raw.how_to.empty()) raw.how_to = "convert again from the checkpoint";
    collector.Add(std::move(raw));
  }
  report.findings = std::move(collector).Join();
  return report;
}

}  // namespace lockstep

#include "audit/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "audit/findings.h"
#include "base/dtype.h"
#include "spec/fields.h"

namespace lockstep {

Result<AuditReport> Audit(const Model& reference, const OnnxModel& candidate) {
  const Graph graph(candidate);
  AuditReport report;
  Collector collector;
  report.decoder = FindDecoder(graph, reference.spec, report.notes);
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
  // Attention that is built of elementary operators is not read.
  if (operators)
    CompareFacts(reference, graph, report, collector);
  else
    report.notes.push_back(
        "attention is built of elementary operators: its window, scale and RoPE were not compared");
  CompareConfig(reference, candidate, graph, report, collector);
  report.findings = std::move(collector).Join();
  return report;
}

namespace {

// Of two views of equal shape; the largest difference and the correlation.
WeightResult CompareViews(const WeightView& a, const WeightView& b) {
  WeightResult result{.state = WeightState::kEqual};
  if (a.rows != b.rows || a.cols != b.cols) {
    result.state = WeightState::kDiffers;
    result.correlation = 0;
    return result;
  }
  std::vector<float> x(static_cast<size_t>(a.cols)), y(x);
  double n = 0, sa = 0, sb = 0, ab = 0, aa = 0, bb = 0, largest = 0;
  bool bf16 = true, fp16 = true;  // each is the reference's number in fewer bits
  for (int64_t r = 0; r < a.rows; ++r) {
    a.ReadRows(r, 1, x.data(), a.cols);
    b.ReadRows(r, 1, y.data(), b.cols);
    for (size_t i = 0; i < x.size(); ++i) {
      const double p = x[i], q = y[i];
      bf16 = bf16 && ToFloat(ToBFloat16(x[i])) == y[i];
      fp16 = fp16 && ToFloat(ToFloat16(x[i])) == y[i];
      n += 1;
      sa += p;
      sb += q;
      ab += p * q;
      aa += p * p;
      bb += q * q;
      largest = std::max(largest, std::abs(p));
      result.max_abs = std::max(result.max_abs, std::abs(p - q));
    }
  }
  // What a GGUF writer folds into a norm and the binding takes out again rounds once.
  if (result.max_abs <= 3e-7 * std::max(1.0, largest)) return result;
  const double v = (aa - sa * sa / n) * (bb - sb * sb / n);
  result.correlation = v > 0 ? (ab - sa * sb / n) / std::sqrt(v) : 0;
  // As AreSoundCodes in compare_weights.cc; block formats of 4 bits and more, and those below.
  const bool fine = b.type->bits_per_weight() >= 4;
  const double slope = aa > sa * sa / n ? (ab - sa * sb / n) / (aa - sa * sa / n) : 0;
  const bool sound =
      result.correlation >= (fine ? 0.97 : 0.85) && std::abs(slope - 1) <= (fine ? 0.05 : 0.3);
  result.state = bb == 0                     ? WeightState::kZeroed
                 : !b.type->plain() && sound ? WeightState::kQuantized
                                             : WeightState::kDiffers;
  result.bits = static_cast<int>(std::lround(b.type->bits_per_weight()));
  result.block = b.type->block_elements;
  if (result.state == WeightState::kDiffers && b.type->bits_per_weight() <= 16 && b.type->plain() &&
      (bf16 || fp16)) {
    result.state = WeightState::kRounded;
    result.rounding = bf16 ? Rounding::kBF16 : Rounding::kFP16;
  }
  return result;
}

}  // namespace

Result<AuditReport> Audit(const Model& reference, const Model& candidate) {
  AuditReport report;
  Collector collector;
  for (const FieldDifference& difference : JoinLayers(Diff(reference.spec, candidate.spec))) {
    if (difference.path == "architecture") continue;
    RawFinding raw{.kind = FindingKind::kStructure, .path = difference.path};
    raw.what = "another fact";
    raw.expected = difference.a;
    raw.found = difference.b;
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
    report.weights.emplace(slot.id, result);
    if (result.state == WeightState::kEqual) continue;
    RawFinding raw{.layer = slot.id.layer};
    WeightId plain = slot.id;
    plain.layer = -1;
    raw.path = ToString(plain);
    WeightEdit edit{.role = slot.id.role, .part = slot.id.part, .expert = slot.id.expert};
    switch (result.state) {
      case WeightState::kQuantized:
        raw.kind = FindingKind::kQuantized;
        raw.what = "quantized weights";
        raw.expected = "the reference's numbers";
        raw.found = fmt::format("{} codes that follow them", theirs->type->name);
        raw.how_to = "nothing: fewer bits are a choice, not a fault";
        break;
      case WeightState::kRounded:
        raw.kind = FindingKind::kQuantized;
        raw.what = fmt::format("rounded to {}", theirs->type->name);
        raw.how_to = "nothing: fewer bits are a choice, not a fault";
        break;
      case WeightState::kZeroed:
        raw.what = "all zeros";
        raw.weight_edit = edit;
        break;
      case WeightState::kMissing:
        raw.what = "the weight is not there";
        raw.weight_edit = edit;
        break;
      default:
        raw.what = "holds other numbers";
        raw.found = fmt::format("correlation {:.3f}", result.correlation);
        break;
    }
    if (raw.how_to.empty()) raw.how_to = "convert again from the checkpoint";
    collector.Add(std::move(raw));
  }
  report.findings = std::move(collector).Join();
  return report;
}

}  // namespace lockstep

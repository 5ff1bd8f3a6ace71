// Every weight of the reference against the tensor that the graph has in its place.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <set>

#include "audit/equivalent_weights.h"
#include "audit/exchanges.h"
#include "audit/findings.h"
#include "audit/mend_weights.h"
#include "audit/storage.h"
#include "audit/walk.h"
#include "audit/weight_places.h"
#include "audit/weight_sums.h"
#include "audit/zero_points.h"
#include "base/dtype.h"
#include "base/quoted.h"
#include "reference/ops.h"

namespace lockstep {
namespace {

constexpr double kSameCodes = 0.9;  // correlation from which codes may stand for these numbers

class Comparer : WeightPlaces {
 public:
  Comparer(const Model& reference, const Graph& graph, AuditReport& report, Collector& out)
      : WeightPlaces(reference, graph, report.decoder), report_(report), out_(out) {}

  void Run() {
    Search();
    std::vector<std::string> lost;
    std::vector<WeightSlot> slots = RequiredWeights(reference_.spec);
    if (HasOwnHead())
      slots.push_back({.id = kHead,
                       .rows = reference_.spec.embedding.vocab_size,
                       .cols = reference_.spec.embedding.hidden_size});
    for (const WeightSlot& slot : slots) report_.weights.emplace(slot.id, One(slot));
    SettleEquivalents(reference_, graph_, report_);
    const std::vector<ExchangeFinding> exchanged = TellExchanges(report_.weights);
    std::set<WeightId> told;
    for (const ExchangeFinding& finding : exchanged)
      for (const Exchange& exchange : finding.exchanges)
        told.insert(exchange.begin(), exchange.end());
    for (const WeightSlot& slot : slots) {
      const WeightResult& result = report_.weights.at(slot.id);
      if (result.state == WeightState::kNotFound) lost.push_back(ToString(slot.id));
      if (!told.contains(slot.id)) Tell(slot, result);
    }
    for (const ExchangeFinding& finding : exchanged) TellExchange(finding, slots);
    if (!lost.empty())
      report_.notes.push_back(
          fmt::format("where the graph keeps {} could not be told", QuotedList(lost, 6)));
    Extra();
  }

 private:
  // The reference's head is its table of embeddings, and the graph has a matrix of its own for it.
  bool HasOwnHead() const {
    const auto head = found().matrices.find(kHead), table = found().matrices.find(kTable);
    if (!reference_.spec.lm_head.tied || head == found().matrices.end()) return false;
    if (table == found().matrices.end()) return true;
    const StoredMatrix &a = head->second.matrix, &b = table->second.matrix;
    if (a.codes.has_value() != b.codes.has_value() || a.values.tensor != b.values.tensor)
      return true;
    if (a.codes) return a.codes->scales != b.codes->scales || a.codes->zeros != b.codes->zeros;
    return !(a.values == b.values);
  }

  double OffsetOf(const WeightId& id) const {
    const NormSpec* norm = NormOf(id);
    return norm != nullptr ? norm->weight_offset : 0;
  }

  static std::string NormPath(Role role) {
    switch (role) {
      case Role::kFinalNorm:
        return "final_norm";
      case Role::kMixerPreNorm:
        return "mixer_pre_norm";
      case Role::kMixerPostNorm:
        return "mixer_post_norm";
      case Role::kMlpPreNorm:
        return "mlp_pre_norm";
      case Role::kMlpPostNorm:
        return "mlp_post_norm";
      case Role::kQNorm:
        return "mixer.q_norm";
      default:
        return "mixer.k_norm";
    }
  }

  // Weights whose place the data flow did not give: any matrix of the same shape that holds the
  // same numbers and that nothing else is.
  void Search() {
    std::vector<FoundMatrix> free;
    bool listed = false;
    for (const WeightSlot& slot : RequiredWeights(reference_.spec)) {
      if (slot.id.part != Part::kWeight || NormOf(slot.id) != nullptr) continue;
      if (found().matrices.contains(slot.id)) continue;
      if (!listed) {
        for (int n = 0; n < static_cast<int>(graph_.nodes().size()); ++n)
          if (auto matrix = MatrixOf(graph_, n)) free.push_back(*matrix);
        listed = true;
      }
      const Rows ref = OfReference(ReferenceOf(slot.id), nullptr);
      for (FoundMatrix& matrix : free) {
        const Rows got = OfMatrix(graph_, matrix.matrix);
        if (!SampleAgrees(ref, got, matrix.matrix.codes ? kSameCodes : 1)) continue;
        Walk(graph_).AddBias(matrix);
        report_.decoder.matrices.emplace(slot.id, matrix);
        break;
      }
    }
  }

  // By less than the codes' own noise: seen on which side of them the numbers lie.
  bool ScalesAreOff(const WeightId& id, const Rows& ref, const Rows& got) const {
    StoredMatrix units = found().matrices.at(id).matrix;
    const OnnxType type = graph_.model().tensors()[static_cast<size_t>(units.codes->scales)].type;
    const double precision = type == OnnxType::kFloat16    ? 0x1p-11
                             : type == OnnxType::kBFloat16 ? 0x1p-8
                                                           : 0x1p-20;
    units.codes->unit_scales = true;
    return SidesOf(ref, got, OfMatrix(graph_, units), units.codes->block, precision).OneSided();
  }

  WeightResult One(const WeightSlot& slot) const {
    WeightResult result;
    bool place_known = false;
    const auto got = Found(slot.id, place_known);
    if (!got) {
      result.state = place_known ? WeightState::kMissing : WeightState::kNotFound;
      return result;
    }
    const Rows ref = OfReference(ReferenceOf(slot.id), NormOf(slot.id));
    if (got->rows != ref.rows || got->cols != ref.cols) {
      result.state = WeightState::kDiffers;
      result.correlation = 0;
      return result;
    }
    const Sums sums = SumsOf(ref, *got);
    result.max_abs = sums.max_abs;
    result.correlation = sums.correlation();
    result.not_finite = sums.not_finite_b;
    result.reference_not_finite = sums.not_finite_a;
    if (sums.not_finite_a > 0 || sums.not_finite_b > 0) {
      result.state = WeightState::kDiffers;
      return result;
    }
    const BlockCodes* const codes = CodesOf(slot.id);
    const double size = std::max(sums.largest, OffsetOf(slot.id));
    if (sums.max_abs <= kFolded * size) {
      result.state = WeightState::kEqual;
      result.correlation = 1;
    } else if (sums.bf16 || sums.fp16) {
      result.state = WeightState::kRounded;
      result.rounding = sums.bf16 ? Rounding::kBF16 : Rounding::kFP16;
      // Only the type that the graph keeps it in is a choice; another one was on its way there.
      const Rounding kept = Storage(slot.id);
      if (kept == Rounding::kFP16 && sums.fp16) result.rounding = kept;
      if (result.rounding == kept) result.bits = 16;
    } else if (RoundedBeforeOffset(slot.id, *got)) {
      result.state = WeightState::kRounded;
      result.rounding = Storage(slot.id);
      result.bits = 16;
    } else if (sums.largest_b == 0) {
      result.state = WeightState::kZeroed;
    } else if (codes != nullptr && ZeroShiftsOf(graph_, found().matrices.at(slot.id).matrix, ref)) {
      result.state = WeightState::kZeroPoints;
      result.bits = codes->bits;
      result.block = codes->block;
    } else if (codes != nullptr && AreSoundCodes(sums, codes->bits) &&
               EveryBlockFollows(ref, *got, codes->bits, codes->block) &&
               !ScalesAreOff(slot.id, ref, *got)) {
      result.state = WeightState::kQuantized;
      result.bits = codes->bits;
      result.block = codes->block;
    } else {
      Differs(slot, ref, *got, sums, result);
    }
    return result;
  }

  void Differs(const WeightSlot& slot, const Rows& ref, const Rows& got, const Sums& sums,
               WeightResult& result) const {
    result.state = WeightState::kDiffers;
    // got = slope * ref + shift?
    const double slope =
        sums.variance_a() > 0 ? (sums.ab - sums.a * sums.b / sums.n) / sums.variance_a() : 0;
    const double shift = (sums.b - slope * sums.a) / sums.n;
    double worst = 0;
    for (int64_t r = 0; r < ref.rows; ++r) {
      const auto x = ref.Row(r), y = got.Row(r);
      for (size_t i = 0; i < x.size(); ++i)
        worst = std::max(worst, std::abs(slope * double{x[i]} + shift - double{y[i]}));
    }
    if (slope != 0 && worst <= 1e-5 * sums.largest_b) {
      const bool shifted = std::abs(shift) > 1e-5 * sums.largest_b;
      if (!shifted || std::abs(slope - 1) < 1e-5) {
        result.state = shifted ? WeightState::kOffset : WeightState::kScaled;
        result.factor = shifted ? shift : slope;
        return;
      }
    }
    std::vector<NamedRows> others;
    for (const auto& [id, view] : reference_.weights.all())
      if (view.rows == ref.rows && view.cols == ref.cols)
        others.push_back({id, OfReference(view, NormOf(id))});
    if (const auto owner = OwnerOf(got, slot.id, CodesOf(slot.id) != nullptr, others)) {
      result.state = WeightState::kOther;
      result.other = owner;
      return;
    }
    if (const auto owner = OwnerOfCodes(slot.id)) {
      result.state = WeightState::kOther;
      result.other = owner;
      return;
    }
    if (ref.rows == ref.cols && ref.rows > 1 && ref.rows <= 8192) {
      const auto row = got.Row(0);
      double worst_column = 0;
      for (int64_t r = 0; r < ref.rows; ++r)
        worst_column = std::max(
            worst_column, std::abs(double{ref.Row(r)[0]} - double{row[static_cast<size_t>(r)]}));
      if (worst_column <= kFolded * sums.largest) result.state = WeightState::kTransposed;
    }
    if (result.state == WeightState::kDiffers) Permuted(slot, ref, got, sums, result);
  }

  // The weight whose codes these are, under the scales in its place.
  std::optional<WeightId> OwnerOfCodes(const WeightId& id) const {
    if (CodesOf(id) == nullptr) return std::nullopt;
    const StoredMatrix& mine = found().matrices.at(id).matrix;
    for (const auto& [other, matrix] : found().matrices) {
      const StoredMatrix& its = matrix.matrix;
      if (other == id || reference_.weights.Find(other) == nullptr ||
          !AlikeKept(graph_, mine, its) || its.codes->scales == mine.codes->scales)
        continue;
      const Rows ref = OfReference(ReferenceOf(other), NormOf(other));
      const Rows got = OfCodes(graph_, mine, its);
      if (SampleAgrees(ref, got, kSameCodes) && AreSoundCodes(SumsOf(ref, got), its.codes->bits))
        return other;
    }
    return std::nullopt;
  }

  void Permuted(const WeightSlot& slot, const Rows& ref, const Rows& got, const Sums& sums,
                WeightResult& result) const {
    if (slot.id.role != Role::kQProj && slot.id.role != Role::kKProj) return;
    const auto* attention = std::get_if<AttentionSpec>(
        &reference_.spec.layers[static_cast<size_t>(slot.id.layer)].mixer);
    if (attention == nullptr || slot.id.part != Part::kWeight) return;
    const int64_t dim = attention->head_dim, half = dim / 2;
    for (const bool pairs : {true, false}) {
      double worst = 0;
      for (int64_t r = 0; r < std::min(ref.rows, dim); ++r) {
        const int64_t to = pairs ? 2 * (r % half) + r / half : r % 2 * half + r / 2;
        const auto x = ref.Row(r), y = got.Row(to);
        for (size_t i = 0; i < x.size(); ++i)
          worst = std::max(worst, std::abs(double{x[i]} - double{y[i]}));
      }
      if (worst > kFolded * sums.largest) continue;
      result.state = pairs ? WeightState::kPairs : WeightState::kHalves;
      return;
    }
  }

  void Tell(const WeightSlot& slot, const WeightResult& result) {
    const WeightId& id = slot.id;
    RawFinding raw{.layer = id.layer, .path = PathIn(id)};
    WeightEdit edit{.role = id.role, .part = id.part, .expert = id.expert};
    raw.expected = "the checkpoint's numbers";
    bool has_edit = true;
    switch (result.state) {
      case WeightState::kEqual:
      case WeightState::kEquivalent:
      case WeightState::kNotFound:
        return;
      case WeightState::kQuantized:
        raw.kind = FindingKind::kQuantized;
        raw.what = "quantized weights";
        raw.expected = "the checkpoint's numbers";
        raw.found =
            fmt::format("{}-bit codes in blocks of {} that follow them", result.bits, result.block);
        raw.how_to = "nothing: fewer bits are a choice, not a fault";
        out_.Add(std::move(raw));
        return;
      case WeightState::kRounded: {
        const std::string_view to = result.rounding == Rounding::kBF16 ? "bf16" : "fp16";
        const NormSpec* norm = id.part == Part::kWeight ? NormOf(id) : nullptr;
        if (norm != nullptr && norm->weight_offset != 0) {
          raw.path = NormPath(id.role);
          raw.what =
              fmt::format("{:g} + weight of the norm was computed in {}", norm->weight_offset, to);
          raw.edit_path = raw.path + ".weight_rounding";
          raw.edit_json = fmt::format("\"{}\"", to);
          raw.expected = "fp32";
          raw.found = to;
          if (result.rounding == Storage(id)) {
            raw.kind = FindingKind::kQuantized;
            raw.what =
                fmt::format("{:g} + weight of the norm is kept in {}", norm->weight_offset, to);
          }
        } else {
          raw.what = fmt::format("rounded to {}", to);
          raw.expected = ReferenceOf(id).type->name;
          raw.found = to;
          edit.change = WeightChange::kRound;
          edit.rounding = result.rounding;
          raw.kind =
              result.rounding == Storage(id) ? FindingKind::kQuantized : FindingKind::kWeight;
        }
        break;
      }
      case WeightState::kScaled:
        raw.found = fmt::format("them times {:.6g}", result.factor);
        raw.what = fmt::format("{} by {:.6g}", "scaled", result.factor);
        edit.change = WeightChange::kScale;
        edit.value = result.factor;
        break;
      case WeightState::kOffset:
        raw.found = fmt::format("them plus {:.6g}", result.factor);
        raw.what = fmt::format("{:.6g} is added to every element", result.factor);
        edit.change = WeightChange::kAdd;
        edit.value = result.factor;
        if (const NormSpec* norm = NormOf(id); norm != nullptr && id.part == Part::kWeight) {
          raw.path = NormPath(id.role);
          raw.edit_path = raw.path + ".weight_offset";
          raw.edit_json = Json(norm->weight_offset + RoundedOffset(result.factor)).dump();
        }
        break;
      case WeightState::kZeroed:
        raw.what = "all zeros";
        raw.found = "zeros";
        edit.change = WeightChange::kZero;
        break;
      case WeightState::kOther:
        edit.change = WeightChange::kTake;
        edit.other_role = result.other->role;
        if (result.other->layer == id.layer && result.other->expert == id.expert) {
          raw.what = fmt::format("holds {} of the same place", InfoOf(result.other->role).name);
        } else {
          raw.what = fmt::format("holds {}", ToString(*result.other));
          edit.other_layer = result.other->layer;
          edit.other_expert = result.other->expert;
        }
        raw.found = fmt::format("those of {}", ToString(*result.other));
        has_edit = result.other->part == id.part;
        break;
      case WeightState::kTransposed:
        raw.what = "transposed";
        raw.found = "them with rows for columns";
        edit.change = WeightChange::kTranspose;
        break;
      case WeightState::kPairs:
        raw.what = "the rows of each head are in pairs, not in halves";
        raw.found = "their rows in another order";
        edit.change = WeightChange::kHalvesToPairs;
        break;
      case WeightState::kHalves:
        raw.what = "the rows of each head are in halves, not in pairs";
        raw.found = "their rows in another order";
        edit.change = WeightChange::kPairsToHalves;
        break;
      case WeightState::kZeroPoints:
        TellZeroPoints(id, raw);
        has_edit = false;
        break;
      case WeightState::kMissing:
        raw.what = id.part == Part::kBias ? "the bias is dropped" : "the weight is not there";
        raw.found = "nothing";
        edit.change = WeightChange::kZero;
        has_edit = id.part == Part::kBias;
        break;
      case WeightState::kDiffers:
        has_edit = false;
        raw.expected = "the checkpoint's numbers";
        raw.found = fmt::format("correlation {:.3f}", result.correlation);
        raw.what = "holds other numbers";
        if (const auto rows = EndOfPositions(id)) {
          raw.expected = fmt::format("{} rows", ReferenceOf(id).rows);
          raw.found = fmt::format("{} rows", *rows);
          raw.what = "the table of learned positions ends before the context";
        } else if (const auto shift = RowShiftOf(id)) {
          raw.expected = "row p for position p";
          raw.found =
              fmt::format("row p for position p {} {}", *shift > 0 ? "+" : "-", std::abs(*shift));
          raw.what = "the rows are shifted: each holds the numbers of another position";
        }
        if (result.not_finite > 0) {
          raw.what = "holds numbers that are not finite";
          raw.found = fmt::format("{} that are NaN or infinite", result.not_finite);
        }
        if (result.reference_not_finite > 0) {
          raw.what = "the reference's own numbers are not all finite";
          raw.expected = "finite numbers";
          raw.found =
              fmt::format("{} in the reference, {} in the candidate that are NaN or infinite",
                          result.reference_not_finite, result.not_finite);
          raw.how_to = "mend the reference's checkpoint: NaN and infinities are never written";
          out_.Add(std::move(raw));
          return;
        }
        break;
    }
    if (has_edit && !raw.edit_json) raw.weight_edit = edit;
    if (raw.weight_edit && id == kHead && reference_.spec.lm_head.tied) {
      // Of its own first, as the table is; then what was found.
      raw.edit = Edit{.spec = {{"lm_head.tied", "false"}}};
      raw.edit->weights.push_back(
          {.change = WeightChange::kTake, .role = Role::kLmHead, .other_role = Role::kEmbedTokens});
      raw.edit->weights.push_back(*raw.weight_edit);
      raw.weight_edit.reset();
    }
    MendWeight(*this, slot, result.state, raw);
    out_.Add(std::move(raw));
  }

  // Of a table by positions that has the first of the reference's rows alone: how many.
  std::optional<int64_t> EndOfPositions(const WeightId& id) const {
    if (id.role != Role::kEmbedPositions || id.part != Part::kWeight) return std::nullopt;
    bool known = false;
    const auto got = Found(id, known);
    const Rows ref = OfReference(ReferenceOf(id), nullptr);
    if (!got || got->cols != ref.cols || got->rows >= ref.rows) return std::nullopt;
    const Rows first{got->rows, ref.cols, ref.read};
    return SampleAgrees(first, *got, 1) ? std::optional(got->rows) : std::nullopt;
  }

  // Of a table by positions: row r holds the numbers of position r + shift. Rows that were rolled
  // around may hold anything.
  std::optional<int64_t> RowShiftOf(const WeightId& id) const {
    if (id.role != Role::kEmbedPositions || id.part != Part::kWeight) return std::nullopt;
    bool known = false;
    const auto got = Found(id, known);
    const Rows ref = OfReference(ReferenceOf(id), nullptr);
    constexpr int64_t kMostShift = 16;
    if (!got || got->rows != ref.rows || got->cols != ref.cols || ref.rows < 2 * kMostShift)
      return std::nullopt;
    const auto stands = [&](int64_t shift) {
      for (int64_t r = std::max<int64_t>(0, -shift); r < std::min(ref.rows, ref.rows - shift); ++r)
        if (got->Row(r) != ref.Row(r + shift)) return false;
      return true;
    };
    for (int64_t shift = 1; shift <= kMostShift; ++shift)
      for (const int64_t signed_shift : {shift, -shift})
        if (stands(signed_shift)) return signed_shift;
    return std::nullopt;
  }

  void TellZeroPoints(const WeightId& id, RawFinding& raw) const {
    const StoredMatrix& matrix = found().matrices.at(id).matrix;
    const Rows ref = OfReference(ReferenceOf(id), NormOf(id));
    const auto shifts = ZeroShiftsOf(graph_, matrix, ref);
    if (!shifts) return;
    const auto all = static_cast<int64_t>(shifts->steps.size());
    std::string which = "the zero points are";
    if (shifts->off < all) which = fmt::format("zero points ({} of {}) are", shifts->off, all);
    if (const auto steps = shifts->same) {
      const int by = std::abs(*steps);
      const std::string number = by == 1 ? "one" : fmt::format("{}", by);
      raw.what = fmt::format("{} {} {} than those of its codes", which, number,
                             *steps < 0 ? "more" : "less");
    } else {
      raw.what = fmt::format("{} not those of its codes", which);
    }
    raw.expected = "zero points under which the codes follow the checkpoint's numbers";
    raw.found =
        matrix.codes->zeros >= 0
            ? "others"
            : fmt::format("none stored, so that the operator takes {:g}", matrix.codes->zero);
  }

  void TellExchange(const ExchangeFinding& finding, const std::vector<WeightSlot>& slots) {
    RawFinding raw = finding.raw;
    // Each holds what the next one should.
    for (const Exchange& exchange : finding.exchanges)
      for (size_t i = 0; i < exchange.size(); ++i)
        for (const WeightSlot& slot : slots)
          if (slot.id == exchange[i])
            MendWeight(*this, slot, WeightState::kOther, raw,
                       &exchange[(i + exchange.size() - 1) % exchange.size()]);
    out_.Add(std::move(raw));
  }

  static double RoundedOffset(double x) {
    return std::abs(x - std::round(x)) < 1e-4 ? std::round(x) : x;
  }

  // A graph that computes in 16 bits keeps its weights so: precision, not a fault.
  Rounding Storage(const WeightId& id) const { return StorageOf(graph_, found(), id); }

  // Of a norm that adds a number to its weight: the weight was rounded first, and the sum as well
  // where the graph keeps that.
  bool RoundedBeforeOffset(const WeightId& id, const Rows& got) const {
    const Rounding storage = Storage(id);
    const NormSpec* norm = NormOf(id);
    if (storage == Rounding::kNone || norm == nullptr || norm->weight_offset == 0) return false;
    const WeightView& view = ReferenceOf(id);
    const auto rounded = [&](Rounding sum) {
      return Rows{view.rows, view.cols, [&view, norm, storage, sum](int64_t row, float* out) {
                    view.ReadRows(row, 1, out, view.cols);
                    for (int64_t c = 0; c < view.cols; ++c)
                      out[c] = static_cast<float>(
                          Rounded(Rounded(out[c], storage) + norm->weight_offset, sum));
                  }};
    };
    for (const Rounding sum : {Rounding::kNone, storage}) {
      const Sums sums = SumsOf(rounded(sum), got);
      if (sums.max_abs <= kFolded * std::max(sums.largest, norm->weight_offset)) return true;
    }
    return false;
  }

  static std::string PathIn(const WeightId& id) {
    WeightId plain = id;
    plain.layer = -1;
    std::string text = ToString(plain);
    return text;
  }

  // Biases that the reference does not have.
  void Extra() {
    for (const auto& [id, matrix] : found().matrices) {
      WeightId bias = id;
      bias.part = Part::kBias;
      if (!matrix.bias || reference_.weights.Find(bias) != nullptr) continue;
      const std::vector<float> values = graph_.Read(*matrix.bias);
      if (std::all_of(values.begin(), values.end(), [](float x) { return x == 0; })) continue;
      RawFinding raw{.layer = id.layer, .path = PathIn(bias)};
      raw.what = "a bias that the checkpoint does not have";
      raw.expected = "none";
      raw.found = fmt::format("{} numbers", values.size());
      const std::vector<float> zeros(values.size(), 0.0f);
      if (auto patch = PatchOf(graph_, *matrix.bias, zeros))
        raw.patch.tensors.push_back(*std::move(patch));
      else
        raw.how_to = "export again from the checkpoint";
      out_.Add(std::move(raw));
    }
  }

  AuditReport& report_;
  Collector& out_;
};

}  // namespace

void CompareWeights(const Model& reference, const Graph& graph, AuditReport& report,
                    Collector& out) {
  Comparer(reference, graph, report, out).Run();
}

}  // namespace lockstep

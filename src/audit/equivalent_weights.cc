#include "audit/equivalent_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "audit/weight_places.h"
#include "audit/weight_sums.h"
#include "spec/fields.h"

namespace lockstep {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 28;  // of one matrix, that is held twice as floats
constexpr double kInverse = 1e-6;                    // of two factors whose product is to be 1

struct Numbers {
  int64_t rows = 0, cols = 0;
  std::vector<float> values;  // [rows, cols]
  float At(int64_t r, int64_t c) const { return values[static_cast<size_t>(r * cols + c)]; }
};

std::optional<Numbers> All(const Rows& rows) {
  if (rows.rows < 1 || rows.cols < 1 || rows.rows > kMostElements / rows.cols) return std::nullopt;
  Numbers out{rows.rows, rows.cols, std::vector<float>(static_cast<size_t>(rows.rows * rows.cols))};
  for (int64_t r = 0; r < rows.rows; ++r) rows.read(r, out.values.data() + r * rows.cols);
  return out;
}

// Both sides of a weight.
struct Two {
  Numbers ours, theirs;
};

// All the numbers that one neuron, or one head, reads and writes with.
using Record = std::vector<float>;

void AppendRows(const Numbers& from, int64_t first, int64_t count, Record& to) {
  to.insert(to.end(), from.values.begin() + first * from.cols,
            from.values.begin() + (first + count) * from.cols);
}

void AppendColumns(const Numbers& from, int64_t first, int64_t count, Record& to) {
  for (int64_t r = 0; r < from.rows; ++r)
    to.insert(to.end(), from.values.begin() + r * from.cols + first,
              from.values.begin() + r * from.cols + first + count);
}

bool Near(const Record& a, const Record& b, double bound) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!(std::abs(double{a[i]} - double{b[i]}) <= bound)) return false;
  return true;
}

double Largest(const Numbers& numbers) {
  double out = 0;
  for (const float x : numbers.values) out = std::max(out, std::abs(double{x}));
  return out;
}

class Settler : WeightPlaces {
 public:
  Settler(const Model& reference, const Graph& graph, AuditReport& report)
      : WeightPlaces(reference, graph, report.decoder), report_(report) {}

  void Run() {
    const auto layers = static_cast<int32_t>(reference_.spec.layers.size());
    for (int32_t i = 0; i < layers; ++i) {
      const LayerSpec& layer = reference_.spec.layers[static_cast<size_t>(i)];
      Norms(i, layer);
      if (const auto* attention = std::get_if<AttentionSpec>(&layer.mixer)) Heads(i, *attention);
      if (const auto* mlp = std::get_if<MlpSpec>(&layer.mlp))
        Neurons(i, -1, *mlp, {Role::kGateProj, Role::kUpProj, Role::kDownProj});
      if (const auto* moe = std::get_if<MoeSpec>(&layer.mlp))
        for (int32_t e = 0; e < moe->num_experts; ++e)
          Neurons(i, e, moe->expert,
                  {Role::kExpertGateProj, Role::kExpertUpProj, Role::kExpertDownProj});
    }
    if (report_.weights.contains(kHead))
      Fold({Role::kFinalNorm, Part::kWeight, -1, -1}, {kHead}, kIntoHead);
    Say();
  }

 private:
  enum Kind : uint8_t { kOrderOfNeurons, kOrderOfHeads, kFactors, kIntoMatrices, kIntoHead };

  static WeightId Bias(WeightId id) {
    id.part = Part::kBias;
    return id;
  }

  // Absent: not found, or no plain numbers, or others in number or not finite.
  std::optional<Two> Load(const WeightId& id) const {
    if (CodesOf(id) != nullptr) return std::nullopt;
    const auto at = report_.weights.find(id);
    if (at == report_.weights.end() || at->second.not_finite > 0 ||
        at->second.reference_not_finite > 0)
      return std::nullopt;
    bool known = false;
    const auto got = Found(id, known);
    const Rows ref = OfReference(ReferenceOf(id), NormOf(id));
    if (!got || got->rows != ref.rows || got->cols != ref.cols) return std::nullopt;
    auto ours = All(ref), theirs = All(*got);
    if (!ours || !theirs) return std::nullopt;
    return Two{*std::move(ours), *std::move(theirs)};
  }

  bool Has(const WeightId& id) const { return report_.weights.contains(id); }
  bool Is(const WeightId& id, WeightState state) const {
    const auto at = report_.weights.find(id);
    return at != report_.weights.end() && at->second.state == state;
  }
  // The weight is other numbers, and not only fewer bits of the right ones.
  bool Other(const WeightId& id) const {
    return Is(id, WeightState::kDiffers) || Is(id, WeightState::kScaled) ||
           Is(id, WeightState::kOther) || Is(id, WeightState::kTransposed);
  }

  void Settle(const std::vector<WeightId>& ids, Kind kind, int64_t layer) {
    for (const WeightId& id : ids)
      if (Other(id)) {
        WeightResult& result = report_.weights.at(id);
        result.state = WeightState::kEquivalent;
        result.other.reset();
      }
    std::vector<int64_t>& layers = settled_[kind];
    if (layers.empty() || layers.back() != layer) layers.push_back(layer);
  }

  // A weight and its bias, if it has one.
  void WithBias(const WeightId& id, std::vector<WeightId>& ids) const {
    ids.push_back(id);
    if (Has(Bias(id))) ids.push_back(Bias(id));
  }

  // --- order

  void Neurons(int32_t layer, int32_t expert, const MlpSpec& spec,
               const std::array<Role, 3>& roles) {
    const WeightId gate{roles[0], Part::kWeight, layer, expert};
    const WeightId up{roles[1], Part::kWeight, layer, expert};
    const WeightId down{roles[2], Part::kWeight, layer, expert};
    std::vector<WeightId> rows;
    if (spec.gated) WithBias(gate, rows);
    WithBias(up, rows);
    if (!Other(up) || !Other(down)) return;
    if (spec.gated && !spec.clamped_glu && Scaled(up, down))
      return Settle({up, Bias(up), down}, kFactors, layer);
    std::vector<Two> of_rows;
    double bound = 0;
    for (const WeightId& id : rows) {
      auto two = Load(id);
      if (!two) return;
      bound = std::max(bound, kFolded * Largest(two->ours));
      of_rows.push_back(*std::move(two));
    }
    const auto out = Load(down);
    if (!out) return;
    bound = std::max(bound, kFolded * Largest(out->ours));
    const auto records = [&](const Numbers Two::*side) {
      std::vector<Record> all;
      for (int64_t n = 0; n < out->ours.cols; ++n) {
        Record record;
        for (const Two& two : of_rows) {
          // A bias is one row.
          const bool bias = (two.*side).rows == 1;
          bias ? AppendColumns(two.*side, n, 1, record) : AppendRows(two.*side, n, 1, record);
        }
        AppendColumns(out.value().*side, n, 1, record);
        all.push_back(std::move(record));
      }
      std::ranges::sort(all);
      return all;
    };
    for (const Two& two : of_rows)
      if ((two.ours.rows == 1 ? two.ours.cols : two.ours.rows) != out->ours.cols) return;
    if (!Same(records(&Two::ours), records(&Two::theirs), bound)) return;
    rows.push_back(down);
    Settle(rows, kOrderOfNeurons, layer);
  }

  static bool Same(const std::vector<Record>& a, const std::vector<Record>& b, double bound) {
    return std::ranges::equal(
        a, b, [bound](const Record& x, const Record& y) { return Near(x, y, bound); });
  }

  void Heads(int32_t layer, const AttentionSpec& spec) {
    const auto id = [&](Role role) { return WeightId{role, Part::kWeight, layer, -1}; };
    const WeightId q = id(Role::kQProj), k = id(Role::kKProj), v = id(Role::kVProj),
                   o = id(Role::kOProj), sinks = id(Role::kSinks);
    const bool plain = !spec.q_norm && !spec.k_norm && !spec.clip_qkv;
    if (!spec.clip_qkv && Scaled(v, o)) Settle({v, Bias(v), o}, kFactors, layer);
    if (plain && Scaled(q, k)) Settle({q, Bias(q), k, Bias(k)}, kFactors, layer);
    // Norms over all heads at once have a weight for each.
    if ((spec.q_norm || spec.k_norm) && spec.qk_norm_scope != QkNormScope::kHead) return;
    if (!Other(q) || !Other(o) || spec.num_key_value_heads < 1 || spec.head_dim < 1) return;
    std::vector<WeightId> ids;
    for (const WeightId& one : {q, k, v}) WithBias(one, ids);
    ids.push_back(o);
    if (spec.sinks) ids.push_back(sinks);
    std::map<WeightId, Two> twos;
    double bound = 0;
    for (const WeightId& one : ids) {
      auto two = Load(one);
      if (!two) return;
      bound = std::max(bound, kFolded * Largest(two->ours));
      twos.emplace(one, *std::move(two));
    }
    const int64_t heads = spec.num_attention_heads, kv = spec.num_key_value_heads;
    const int64_t group = heads / kv, dim = spec.head_dim;
    if (twos.at(q).ours.rows != heads * dim || twos.at(k).ours.rows != kv * dim ||
        twos.at(v).ours.rows != kv * dim || twos.at(o).ours.cols != heads * dim)
      return;
    const auto records = [&](const Numbers Two::*side) {
      const auto rows = [&](const WeightId& of, int64_t head, Record& to) {
        AppendRows(twos.at(of).*side, head * dim, dim, to);
        if (const auto bias = twos.find(Bias(of)); bias != twos.end())
          AppendColumns(bias->second.*side, head * dim, dim, to);
      };
      std::vector<Record> groups;
      for (int64_t g = 0; g < kv; ++g) {
        Record all;
        rows(k, g, all);
        rows(v, g, all);
        std::vector<Record> queries;
        for (int64_t h = g * group; h < (g + 1) * group; ++h) {
          Record& query = queries.emplace_back();
          rows(q, h, query);
          AppendColumns(twos.at(o).*side, h * dim, dim, query);
          if (spec.sinks) AppendColumns(twos.at(sinks).*side, h, 1, query);
        }
        std::ranges::sort(queries);
        for (const Record& query : queries) all.insert(all.end(), query.begin(), query.end());
        groups.push_back(std::move(all));
      }
      std::ranges::sort(groups);
      return groups;
    };
    if (Same(records(&Two::ours), records(&Two::theirs), bound)) Settle(ids, kOrderOfHeads, layer);
  }

  // --- factors

  // One times a number (its bias, too), the other over it. What comes between must be linear.
  bool Scaled(const WeightId& one, const WeightId& other) const {
    if (!Is(one, WeightState::kScaled) || !Is(other, WeightState::kScaled)) return false;
    const double factor = report_.weights.at(one).factor;
    if (std::abs(factor * report_.weights.at(other).factor - 1) > kInverse) return false;
    const auto biased = [&](const WeightId& id) {
      return !Has(Bias(id)) ||
             (Is(Bias(id), WeightState::kScaled) &&
              std::abs(report_.weights.at(Bias(id)).factor / report_.weights.at(id).factor - 1) <=
                  kInverse);
    };
    // What the second matrix adds is not between: only queries and keys meet with their biases.
    return biased(one) && (other.role != Role::kKProj || biased(other));
  }

  // --- norms

  void Norms(int32_t layer, const LayerSpec& spec) {
    const auto id = [&](Role role, int32_t expert = -1) {
      return WeightId{role, Part::kWeight, layer, expert};
    };
    std::vector<WeightId> mixer, mlp;
    const auto add = [&](std::vector<WeightId>& to, std::initializer_list<WeightId> ids) {
      for (const WeightId& one : ids)
        if (Has(one)) to.push_back(one);
    };
    add(mixer, {id(Role::kQProj), id(Role::kKProj), id(Role::kVProj), id(Role::kQAProj),
                id(Role::kKvAProj), id(Role::kConvInProj)});
    add(mlp, {id(Role::kGateProj), id(Role::kUpProj), id(Role::kRouter), id(Role::kSharedGateProj),
              id(Role::kSharedUpProj), id(Role::kSharedExpertGate)});
    if (const auto* moe = std::get_if<MoeSpec>(&spec.mlp))
      for (int32_t e = 0; e < moe->num_experts; ++e)
        add(mlp, {id(Role::kExpertGateProj, e), id(Role::kExpertUpProj, e)});
    // Parallel halves may read one norm.
    if (spec.wiring == Wiring::kParallel && !spec.mlp_pre_norm)
      mixer.insert(mixer.end(), mlp.begin(), mlp.end());
    Fold(id(Role::kMixerPreNorm), mixer, kIntoMatrices);
    Fold(id(Role::kMlpPreNorm), mlp, kIntoMatrices);
  }

  void Fold(const WeightId& norm, const std::vector<WeightId>& matrices, Kind kind) {
    // What a norm adds is multiplied by the matrices, too.
    if (!Other(norm) || Has(Bias(norm)) || matrices.empty()) return;
    if (!std::ranges::any_of(matrices, [&](const WeightId& id) { return Other(id); })) return;
    const auto weight = Load(norm);
    if (!weight) return;
    for (const WeightId& id : matrices) {
      const auto two = Load(id);
      if (!two || two->ours.cols != weight->ours.cols) return;
      double largest = 0, worst = 0;
      for (int64_t r = 0; r < two->ours.rows; ++r)
        for (int64_t c = 0; c < two->ours.cols; ++c) {
          const double ours = double{two->ours.At(r, c)} * double{weight->ours.At(0, c)};
          const double theirs = double{two->theirs.At(r, c)} * double{weight->theirs.At(0, c)};
          largest = std::max(largest, std::abs(ours));
          worst = std::max(worst, std::abs(ours - theirs));
        }
      if (!(worst <= kFolded * largest)) return;
    }
    std::vector<WeightId> ids = matrices;
    ids.push_back(norm);
    Settle(ids, kind, norm.layer);
  }

  void Say() const {
    for (const auto& [kind, layers] : settled_) {
      const std::string which = (layers.size() == 1 ? "layer " : "layers ") + JoinNumbers(layers);
      const auto note = [&](const std::string& what) {
        report_.notes.push_back(what + ": other numbers than the checkpoint's, the same function");
      };
      if (kind == kOrderOfNeurons)
        note("the rows of gate and up and the columns of down of " + which +
             " are permuted consistently");
      if (kind == kOrderOfHeads)
        note("the heads of attention of " + which + " are permuted consistently");
      if (kind == kFactors)
        note("matrices of " + which +
             " are multiplied by a factor and the next ones divided by it");
      if (kind == kIntoMatrices)
        note("weights of norms of " + which + " are multiplied into the matrices behind them");
      if (kind == kIntoHead) note("the weight of the final norm is multiplied into the head");
    }
  }

  AuditReport& report_;
  std::map<Kind, std::vector<int64_t>> settled_;
};

}  // namespace

void SettleEquivalents(const Model& reference, const Graph& graph, AuditReport& report) {
  Settler(reference, graph, report).Run();
}

}  // namespace lockstep

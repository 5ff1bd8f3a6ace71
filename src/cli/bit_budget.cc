#include "cli/bit_budget.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "base/quoted.h"
#include "measure/perplexity.h"
#include "model/float_weights.h"
#include "quant/onnx_formats.h"
#include "reference/evaluate.h"

namespace lockstep {
namespace {

// What the operator runs, and where it pays. Scales are fp32.
constexpr CodeChoice kChoices[] = {{2, 32}, {4, 128}, {4, 64}, {4, 32}, {4, 16}, {8, 64}};
constexpr CodeChoice kMeasured[] = {{2, 32}, {4, 32}};
// From there on codes are the fp32 model but for noise; measuring it would be measuring noise.
constexpr double kLeastEffect = 1e-9;

double BytesOf(const CodeChoice& choice, int64_t rows, int64_t cols) {
  const int64_t blocks = (cols + choice.block - 1) / choice.block;
  const int64_t of_block = choice.block * choice.bits / 8 + 4;
  return static_cast<double>(rows * blocks * of_block);
}

// Empty: it stays numbers (vectors, routers, convolutions' kernels, learned positions), or follows
// a policy of its own (experts).
std::string GroupOf(const WeightSlot& slot) {
  const WeightId& id = slot.id;
  const RoleInfo& role = InfoOf(id.role);
  if (id.part != Part::kWeight || slot.rows == 1 || id.expert >= 0 || id.role == Role::kRouter ||
      id.role == Role::kConv || role.part == LedgerPart::kPositions ||
      role.part == LedgerPart::kNorms)
    return {};
  if (id.layer < 0) return std::string(role.name);
  const bool qkv = id.role == Role::kQProj || id.role == Role::kKProj || id.role == Role::kVProj;
  return fmt::format("layers.{}.{}", id.layer, qkv ? "qkv" : role.name);
}

std::vector<BitGroup> GroupsOf(const Model& model) {
  std::vector<BitGroup> out;
  std::map<std::string, size_t> at;
  for (const WeightSlot& slot : RequiredWeights(model.spec)) {
    const std::string name = GroupOf(slot);
    if (name.empty()) continue;
    const auto [place, made] = at.try_emplace(name, out.size());
    if (made) out.push_back({.name = name, .weights = {}, .options = {}});
    BitGroup& group = out[place->second];
    group.weights.push_back(slot.id);
    group.elements += slot.rows * slot.cols;
    if (group.options.empty())
      for (const CodeChoice& choice : kChoices) group.options.push_back({.choice = choice});
    for (GroupOption& option : group.options)
      option.bytes += BytesOf(option.choice, slot.rows, slot.cols);
  }
  for (BitGroup& group : out) std::ranges::stable_sort(group.options, {}, &GroupOption::bytes);
  return out;
}

// Logits of models that differ from one in some weights.
class Effects {
 public:
  Effects(const Model& model, std::span<const int32_t> ids, ThreadPool& pool)
      : model_(model), pool_(pool) {
    sequence_.ids.assign(ids.begin(), ids.end());
    sequence_.prompt = static_cast<int64_t>(ids.size());
    for (int64_t i = 0; i < sequence_.prompt; ++i) sequence_.positions.push_back(i);
  }

  Status Begin() {
    LS_TRY(logits_, Evaluate<float>(model_.spec, model_.weights, pool_, sequence_, {}, {}, -1,
                                    nullptr, &stream_));
    return {};
  }

  // Codes of the group in `weights`; the squared error and the squares of the numbers.
  Status Code(const BitGroup& group, const CodeChoice& choice, Weights& weights, double& error) {
    double squared_error = 0, squares = 0;
    const OnnxFormat& format = *FindOnnxFormat("matmul_nbits");
    for (const WeightId& id : group.weights) {
      const WeightView& view = *model_.weights.Find(id);
      const RowSource source{
          .rows = view.rows,
          .cols = view.cols,
          .read = [&view](int64_t first, int64_t count,
                          float* out) { view.ReadRows(first, count, out, view.cols); },
          .feedback = nullptr};
      const CodeRecipe recipe{.bits = choice.bits, .block = choice.block};
      auto packed = PackMatMulNBits({&source, 1}, recipe, &pool_);
      if (!packed) return tl::unexpected(std::move(packed).error().In(ToString(id)));
      squared_error += packed->squared_error;
      squares += packed->squared_norm;
      std::vector<float> values(static_cast<size_t>(view.elements()));
      pool_.For(static_cast<size_t>(view.rows), [&](size_t r) {
        format.unpack(*packed, recipe, 0, view.rows, view.cols, static_cast<int64_t>(r),
                      values.data() + r * static_cast<size_t>(view.cols));
      });
      SetFloats(weights, id, std::move(values), view.cols);
    }
    error = squares > 0 ? std::sqrt(squared_error / squares) : 0;
    return {};
  }

  Result<double> Kl(const Weights& weights, std::span<const WeightId> changed) {
    const auto first = FirstDifferentLayer(model_.spec, model_.spec, changed);
    if (!first) return 0.0;
    LS_TRY(const auto logits,
           Evaluate<float>(model_.spec, weights, pool_, sequence_, {}, {}, *first, &stream_));
    const auto vocabulary = static_cast<size_t>(model_.spec.embedding.vocab_size);
    std::vector<double> each(sequence_.ids.size());
    pool_.For(each.size(), [&](size_t t) {
      each[t] = KlDivergence(std::span<const float>(logits_).subspan(t * vocabulary, vocabulary),
                             std::span<const float>(logits).subspan(t * vocabulary, vocabulary));
    });
    double sum = 0;
    for (const double kl : each) sum += kl;
    return std::max(sum / static_cast<double>(each.size()), 0.0);
  }

 private:
  const Model& model_;
  ThreadPool& pool_;
  EvaluatedSequence sequence_;
  Stream stream_;
  std::vector<float> logits_;
};

bool IsMeasured(const CodeChoice& choice) {
  return std::ranges::find(kMeasured, choice) != std::end(kMeasured);
}

// What was not measured follows from the measured option whose error is nearest: a KL grows with
// the square of a small error.
void Complete(BitGroup& group) {
  for (GroupOption& option : group.options) {
    if (option.measured) continue;
    const GroupOption* nearest = nullptr;
    const auto apart = [&](const GroupOption& o) {
      return std::abs(std::log((o.error + 1e-12) / (option.error + 1e-12)));
    };
    for (const GroupOption& o : group.options)
      if (o.measured && (nearest == nullptr || apart(o) < apart(*nearest))) nearest = &o;
    const double ratio = nearest->error > 0 ? option.error / nearest->error : 0;
    option.effect = std::max(kLeastEffect, nearest->effect * ratio * ratio);
  }
}

Status MeasureGroups(BitBudget& out, const Model& model, Effects& effects,
                     const ExportProgress& progress) {
  int64_t done = 0;
  const auto total = static_cast<int64_t>(out.groups.size());
  for (BitGroup& group : out.groups) {
    if (!progress("measuring effects", done++, total)) return ExportInterrupted();
    for (GroupOption& option : group.options) {
      Weights weights = model.weights;
      LS_RETURN_IF_ERROR(effects.Code(group, option.choice, weights, option.error));
      if (!IsMeasured(option.choice)) continue;
      LS_TRY(const double kl, effects.Kl(weights, group.weights));
      option.effect = std::max(kLeastEffect, kl);
      option.measured = true;
    }
    Complete(group);
  }
  return {};
}

Result<double> MeasureChosen(const BitBudget& budget, const Model& model, Effects& effects) {
  Weights weights = model.weights;
  std::vector<WeightId> changed;
  for (const BitGroup& group : budget.groups) {
    double error = 0;
    LS_RETURN_IF_ERROR(effects.Code(group, group.options[group.chosen].choice, weights, error));
    changed.insert(changed.end(), group.weights.begin(), group.weights.end());
  }
  return effects.Kl(weights, changed);
}

Status ChooseBySize(BitBudget& out, double bits) {
  if (out.BitsPerWeight(out.frontier.front()) > bits)
    return UsageError(
        "--budget {:g}bpw: the smallest that this model's matrices can be is {:.3f} "
        "bits per weight, scales included; ask for that or more",
        bits, out.BitsPerWeight(out.frontier.front()));
  while (out.point + 1 < out.frontier.size() &&
         out.BitsPerWeight(out.frontier[out.point + 1]) <= bits)
    ++out.point;
  return {};
}

// The effects' sum says where to look, the measured KL whether it is there.
Status ChooseByKl(BitBudget& out, double kl, const Model& model, Effects& effects,
                  const ExportProgress& progress) {
  const auto at = [&](size_t point) -> Result<double> {
    if (!progress("measuring the whole", static_cast<int64_t>(point),
                  static_cast<int64_t>(out.frontier.size())))
      return ExportInterrupted();
    ChooseAt(out.groups, out.frontier, point);
    return MeasureChosen(out, model, effects);
  };
  size_t high = out.frontier.size() - 1;
  LS_TRY(const double least, at(high));
  if (least > kl)
    return UsageError(
        "--max-kl {:g}: with the most bits for every matrix the KL is {:.2e}; ask "
        "for that or more",
        kl, least);
  size_t low = 0;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    LS_TRY(const double there, at(middle));
    if (there <= kl)
      high = middle;
    else
      low = middle + 1;
  }
  out.point = high;
  return {};
}

}  // namespace

std::vector<FrontierPoint> FrontierOf(const std::vector<BitGroup>& groups) {
  struct Step {
    double gain, bytes, effect;
    size_t group, option;
  };
  std::vector<Step> steps;
  FrontierPoint point;
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto& options = groups[g].options;
    point.bytes += options[0].bytes;
    point.effect += options[0].effect;
    for (size_t i = 0; i + 1 < options.size();) {
      size_t best = i;
      double gain = 0;
      for (size_t j = i + 1; j < options.size(); ++j) {
        const double more = options[j].bytes - options[i].bytes;
        const double fall = options[i].effect - options[j].effect;
        if (more > 0 && fall > 0 && fall / more > gain) {
          gain = fall / more;
          best = j;
        }
      }
      if (best == i) break;
      steps.push_back({gain, options[best].bytes - options[i].bytes,
                       options[i].effect - options[best].effect, g, best});
      i = best;
    }
  }
  std::ranges::stable_sort(steps, std::greater<>(), &Step::gain);
  std::vector<FrontierPoint> out = {point};
  for (const Step& step : steps) {
    point.bytes += step.bytes;
    point.effect = std::max(0.0, point.effect - step.effect);
    point.group = step.group;
    point.option = step.option;
    out.push_back(point);
  }
  return out;
}

void ChooseAt(std::vector<BitGroup>& groups, const std::vector<FrontierPoint>& frontier,
              size_t last) {
  for (BitGroup& group : groups) group.chosen = 0;
  for (size_t i = 1; i <= last; ++i) groups[frontier[i].group].chosen = frontier[i].option;
}

CodePlan BitBudget::Plan(const Model& model) const {
  CodePlan plan;
  for (const BitGroup& group : groups)
    for (const WeightId& id : group.weights)
      plan[KeyOf(*model.weights.Find(id))] = group.options[group.chosen].choice;
  return plan;
}

Result<double> ParseBudget(std::string_view text) {
  std::string_view number = text;
  if (number.ends_with("bpw")) number.remove_suffix(3);
  double bits = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), bits);
  if (error != std::errc() || end != number.data() + number.size() || !(bits >= 2) || !(bits <= 16))
    return UsageError("--budget {}: expected bits per weight from 2 to 16, such as 4.25bpw",
                      Quoted(text));
  return bits;
}

Result<BitBudget> MeasureBitBudget(const Model& model, const BitTarget& target,
                                   std::span<const int32_t> ids, ThreadPool& pool,
                                   const ExportProgress& progress) {
  BitBudget out{.groups = GroupsOf(model), .frontier = {}};
  out.tokens = static_cast<int64_t>(ids.size());
  for (const BitGroup& group : out.groups) out.elements += group.elements;
  Effects effects(model, ids, pool);
  LS_RETURN_IF_ERROR(effects.Begin());
  LS_RETURN_IF_ERROR(MeasureGroups(out, model, effects, progress));
  out.frontier = FrontierOf(out.groups);
  if (target.bits_per_weight)
    LS_RETURN_IF_ERROR(ChooseBySize(out, *target.bits_per_weight));
  else if (target.kl)
    LS_RETURN_IF_ERROR(ChooseByKl(out, *target.kl, model, effects, progress));
  ChooseAt(out.groups, out.frontier, out.point);
  LS_TRY(out.measured, MeasureChosen(out, model, effects));
  return out;
}

}  // namespace lockstep

#include "verify/passages.h"

#include <algorithm>
#include <map>
#include <set>

#include "spec/rope_facts.h"

namespace lockstep {
namespace {

constexpr size_t kLeastIds = 5;  // calls of 1, 3 and the rest
constexpr size_t kPage = 64;     // positions of a cache's page; many have fewer
constexpr size_t kSpare = 18;    // rows that GenAI adds to a window, and two
constexpr size_t kMuchLonger = 128;
// Of the plain run's distance from the reference: what its own runs may be apart.
constexpr double kOwnShare = 1.0 / 16;
constexpr size_t kForgotten = 3;     // tokens that a rewind takes back
constexpr int64_t kCallTokens = 16;  // what a call costs besides its tokens, in tokens

// Uneven, one of them a single id, and the last two behind a cache that a window may have left.
std::vector<int64_t> PartsOf(int64_t count) {
  std::vector<int64_t> parts;
  for (const int64_t part : {int64_t{1}, int64_t{3}, (count - 3) / 2, count})
    if (const int64_t n = std::min(part, count); n > 0) {
      parts.push_back(n);
      count -= n;
    }
  return parts;
}

bool Agrees(Verdict verdict) {
  return verdict == Verdict::kMatch || verdict == Verdict::kPrecision ||
         verdict == Verdict::kQuantizedActivations;
}

std::string HowOf(const Probe& probe) {
  switch (probe.passage) {
    case Passage::kWhole:
      return "when the prompt comes whole";
    case Passage::kChunked:
      return fmt::format("when the prompt comes in calls of {} tokens",
                         fmt::join(probe.parts, " + "));
    case Passage::kRewound:
      return fmt::format("when {} other tokens follow the prompt and the cache is cut back",
                         probe.other.size());
    case Passage::kInterleaved:
      return "when another sequence takes its steps in between";
    case Passage::kPaddedBatch:
      return fmt::format("when the prompt shares a batch with one of {} tokens",
                         probe.other.size());
  }
  return "";
}

int64_t Cost(int64_t calls, int64_t tokens) { return calls * kCallTokens + tokens; }

int64_t CostOf(const Probe& probe) {
  const auto count = static_cast<int64_t>(probe.ids.size());
  const auto others = static_cast<int64_t>(probe.other.size());
  const int64_t fed = std::max<int64_t>(probe.steps - 1, 0);
  switch (probe.passage) {
    case Passage::kWhole:
      return Cost(1 + fed, count + fed);
    case Passage::kChunked:
      return Cost(static_cast<int64_t>(probe.parts.size()) + fed, count + fed);
    case Passage::kRewound:
      return Cost(2 + fed, count + others + fed);
    case Passage::kInterleaved:
      return Cost(2 + 2 * fed, count + others + 2 * fed);
    case Passage::kPaddedBatch:
      return Cost(1 + fed, 2 * (others + fed));
  }
  return 0;
}

// The first position of the prompt whose logits lie further apart than `allowed`.
std::optional<int64_t> FirstPosition(Subject& candidate, Probe asked, double allowed,
                                     const Progress& progress) {
  const bool by_parts =
      asked.passage == Passage::kChunked || asked.passage == Passage::kPaddedBatch;
  if (!by_parts || !candidate.Can().all_positions) return std::nullopt;
  asked.all_positions = true;
  asked.steps = 1;
  const auto other = candidate.Run(asked, progress);
  asked.passage = Passage::kWhole;
  const auto whole = candidate.Run(asked, progress);
  if (!other || !whole || !other->logits || !whole->logits ||
      other->logits->shape != whole->logits->shape)
    return std::nullopt;
  for (int64_t r = 0; r < whole->logits->num_rows(); ++r)
    if (!(MaxAbsDifference(whole->logits->Row(r), other->logits->Row(r)) <= allowed)) return r;
  return std::nullopt;
}

bool RoundsActivations(const Subject::Abilities& can) {
  return can.rounds_activations || can.precision != Precision::kFull;
}

// Positions that the longest sequence of a probe takes.
int64_t PositionsOf(const Probe& probe) {
  const auto count = static_cast<int64_t>(probe.ids.size());
  const auto others = static_cast<int64_t>(probe.other.size());
  const int64_t fed = std::max<int64_t>(probe.steps - 1, 0);
  switch (probe.passage) {
    case Passage::kWhole:
    case Passage::kChunked:
      return count + fed;
    case Passage::kRewound:
      return count + std::max(others, fed);
    case Passage::kInterleaved:
    case Passage::kPaddedBatch:
      return std::max(count, others) + fed;
  }
  return 0;
}

// Beyond its context a model gives whatever it gives: only what the plain run takes is asked there.
std::optional<std::string> PastTheContext(const Probe& asked, std::optional<int64_t> context) {
  Probe whole = asked;
  whole.passage = Passage::kWhole;
  const int64_t needed = PositionsOf(asked);
  if (!context || needed <= std::max(*context, PositionsOf(whole))) return std::nullopt;
  return fmt::format("it needs {} positions, and the context has {}", needed, *context);
}

Result<PassageComparison> ComparePassage(Subject& candidate, const PlainRun& plain,
                                         const Probe& asked, const Progress& progress) {
  PassageComparison out{
      .passage = asked.passage, .prompt = plain.probe.name, .how = HowOf(asked), .sentence = {}};
  const auto run = candidate.Run(asked, progress);
  if (!run && IsInterrupted(run.error())) return tl::unexpected(run.error());
  if (!run) {
    // Who says of itself that it cannot take one is believed; who breaks on what it announced has
    // not given the same.
    out.verdict = run.error().code == ErrorCode::kUnsupported ? Verdict::kNotComparable
                                                              : Verdict::kSubjectFailed;
    out.sentence = run.error().message;
    return out;
  }
  const bool agreed = Agrees(plain.compared.verdict);
  PromptTrace base = agreed ? plain.reference : plain.candidate;
  // The plain run's own, whoever measured it: it was bounded there where a recording claims it.
  base.noise = plain.compared.noise;
  const auto compare = [&](const std::optional<RoundingEffect>& rounding) {
    return CompareRuns(base, *run, asked.steps, {.reference = true}, rounding);
  };
  // Beside its own plain run only the order of sums may be another; but where activations are
  // rounded to codes, a last bit is a code now and then, which is a part of what such codes do.
  std::optional<RoundingEffect> flips;
  if (!agreed && RoundsActivations(candidate.Can()))
    flips = {Precision::kRounded, kOwnShare * plain.compared.max_abs() / kRoundingMultiple};
  PromptComparison seen = compare(flips);
  if (seen.verdict == Verdict::kDiffers && agreed) {
    const double unexplained =
        std::max(seen.max_abs(), seen.parting ? seen.parting->gap.value_or(0) / 2 : 0);
    const auto rounding = plain.rounding(unexplained / kRoundingMultiple);
    if (!rounding && IsInterrupted(rounding.error())) return tl::unexpected(rounding.error());
    if (rounding && *rounding) seen = compare(*rounding);
  }
  out.max_abs = seen.max_abs();
  out.allowed = seen.allowed();
  out.sentence = seen.sentence;
  out.verdict = seen.verdict;
  // It ran, and gave something else than numbers: by this way alone.
  if (seen.verdict == Verdict::kSubjectFailed) out.verdict = Verdict::kDiffers;
  if (!agreed && seen.verdict == Verdict::kPrecision) out.verdict = Verdict::kMatch;
  if (out.verdict != Verdict::kDiffers) return out;
  out.first_position = FirstPosition(candidate, asked, out.allowed, progress);
  if (out.first_position)
    out.sentence += fmt::format(", from position {} of the prompt on", *out.first_position);
  return out;
}

}  // namespace

std::vector<size_t> ProbesForPassages(const ProbePlan& plan, const ModelSpec* spec) {
  const auto length = [&](size_t i) { return plan.probes[i].ids.size(); };
  std::vector<size_t> order(plan.probes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, length);
  const auto first_of = [&](size_t least) {
    return std::ranges::find_if(order, [&](size_t i) { return length(i) >= least; });
  };
  std::vector<size_t> chosen;
  if (const auto shortest = first_of(kLeastIds); shortest != order.end())
    chosen.push_back(*shortest);
  else if (!order.empty() && length(order.back()) > 1)
    chosen.push_back(order.back());
  size_t crossed = kPage;
  std::optional<int64_t> window;
  if (spec != nullptr)
    for (const LayerSpec& layer : spec->layers)
      if (const auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
          attention != nullptr && attention->sliding_window)
        window = std::min(window.value_or(*attention->sliding_window), *attention->sliding_window);
  if (window) crossed = static_cast<size_t>(std::max<int64_t>(*window, 0));
  // Caches of a window have some rows to spare: past those too, where that is not much longer.
  auto found = first_of(std::max(crossed + kSpare, kLeastIds));
  if (found == order.end() || length(*found) > crossed + kMuchLonger)
    found = first_of(std::max(crossed + 1, kLeastIds));
  if (found != order.end() && std::ranges::count(chosen, *found) == 0) chosen.push_back(*found);
  return chosen;
}

std::vector<Probe> PassagesOf(const PlainRun& plain, std::span<const Passage> can,
                              const ModelSpec* spec) {
  const std::vector<int32_t>& ids = plain.probe.ids;
  const int64_t vocab = plain.candidate.vocab_size();
  const bool turns_alone = spec != nullptr && DependsOnCallLength(*spec);
  std::vector<Probe> out;
  for (const Passage passage :
       {Passage::kChunked, Passage::kRewound, Passage::kInterleaved, Passage::kPaddedBatch}) {
    if (std::ranges::count(can, passage) == 0) continue;
    if (turns_alone && passage != Passage::kInterleaved) continue;
    Probe probe{.name = plain.probe.name, .text = plain.probe.text};
    probe.rendered = plain.probe.rendered;
    probe.ids = ids;
    probe.steps = std::min(kPassageSteps, plain.probe.steps);
    probe.passage = passage;
    if (passage == Passage::kChunked) {
      if (ids.size() < 2) continue;
      probe.parts = PartsOf(static_cast<int64_t>(ids.size()));
    } else if (passage == Passage::kRewound) {
      // What was forgotten shows in the steps.
      if (probe.steps < 2 || vocab < 2) continue;
      for (size_t i = 0; i < kForgotten; ++i) {
        const int64_t right =
            i < plain.reference.greedy.size() ? plain.reference.greedy[i] : int64_t{ids[0]};
        probe.other.push_back(static_cast<int32_t>((right + 1) % vocab));
      }
    } else {
      probe.other.assign(ids.rbegin(), ids.rend());
      // A batch is padded to the longer one's length; and equal sequences would show nothing.
      for (size_t i = 0; i < kForgotten; ++i) probe.other.push_back(ids[i % ids.size()]);
    }
    out.push_back(std::move(probe));
  }
  return out;
}

Result<std::vector<PassageComparison>> ComparePassages(Subject& reference, Subject& candidate,
                                                       const ProbePlan& plan,
                                                       const std::vector<PlainRun>& runs,
                                                       const Progress& progress) {
  std::vector<PassageComparison> out;
  const auto can = candidate.Can();
  if (can.passages.empty() || !can.any_prompt) return out;
  int64_t left = 0;
  for (const Probe& probe : plan.probes) left += CostOf(probe);
  left *= 1 + int64_t{reference.Can().any_prompt} + int64_t{reference.Can().measures_noise};
  left /= 2;
  const ModelSpec* spec = reference.spec() != nullptr ? reference.spec() : candidate.spec();
  std::optional<int64_t> context = can.context;
  if (spec != nullptr && spec->max_position_embeddings > 0)
    context =
        std::min(context.value_or(spec->max_position_embeddings), spec->max_position_embeddings);
  std::set<Passage> refused;
  bool any = false;
  for (const PlainRun& plain : runs)
    for (const Probe& asked : PassagesOf(plain, can.passages, spec)) {
      if (refused.contains(asked.passage)) continue;
      std::optional<std::string> why = PastTheContext(asked, context);
      if (!why && any && CostOf(asked) > left)
        why = "with it the other ways would cost more than half of the plain runs";
      if (why) {
        out.push_back({.passage = asked.passage,
                       .prompt = plain.probe.name,
                       .how = HowOf(asked),
                       .verdict = Verdict::kNotComparable,
                       .sentence = *std::move(why),
                       .left_out = true});
        continue;
      }
      const auto told = [&](std::string_view doing, int64_t done, int64_t total) {
        return progress(fmt::format("{} ({}), candidate: {}", plain.probe.name,
                                    PassageName(asked.passage), doing),
                        done, total);
      };
      LS_TRY(PassageComparison compared, ComparePassage(candidate, plain, asked, told));
      const bool answered = compared.verdict != Verdict::kNotComparable;
      if (answered) left -= CostOf(asked);
      any = any || answered;
      // What breaks on one prompt is not asked to break on another.
      if (!answered || compared.verdict == Verdict::kSubjectFailed) refused.insert(asked.passage);
      out.push_back(std::move(compared));
    }
  return out;
}

std::vector<std::string> PassageNotes(const std::vector<PassageComparison>& passages) {
  std::vector<std::string> notes;
  std::map<std::string_view, std::vector<std::string>> left_out;  // why -> which
  for (const PassageComparison& passage : passages) {
    if (passage.verdict != Verdict::kNotComparable) continue;
    if (passage.left_out)
      left_out[passage.sentence].push_back(
          fmt::format("{} ({})", PassageName(passage.passage), passage.prompt));
    else
      notes.push_back(fmt::format("candidate: {} ({}): not compared: {}", passage.how,
                                  passage.prompt, passage.sentence));
  }
  for (const auto& [why, which] : left_out)
    notes.push_back(fmt::format("candidate: not asked by {}: {}", fmt::join(which, ", "), why));
  return notes;
}

void ConcludePassages(Verification& v) {
  std::set<Passage> named;  // a way that fails on two prompts is told once
  std::vector<std::string> differ, broken;
  for (const PassageComparison& passage : v.passages) {
    const bool differs = passage.verdict == Verdict::kDiffers;
    if (!differs && passage.verdict != Verdict::kSubjectFailed) continue;
    if (!named.insert(passage.passage).second) continue;
    (differs ? differ : broken)
        .push_back(fmt::format("{} ({}: {})", passage.how, passage.prompt, passage.sentence));
  }
  if (named.empty()) return;
  const bool same = Agrees(v.verdict) || v.verdict == Verdict::kQuantizedWeights;
  if (v.verdict != Verdict::kDiffers && !same) return;
  // What breaks is told apart from other logits: the weights and the formulas are well.
  const std::string fails =
      broken.empty() ? "" : fmt::format("it cannot be run {}", fmt::join(broken, "; and "));
  const std::string told = fmt::format("{}", fmt::join(differ, "; and "));
  if (v.verdict == Verdict::kDiffers) {
    if (!differ.empty()) v.sentence += fmt::format("; other logits still {}", told);
    if (!broken.empty()) v.sentence += "; and " + fails;
    return;
  }
  if (v.verdict == Verdict::kMatch) {
    v.sentence = "the candidate gives the reference's logits when a prompt comes whole, and ";
    if (!differ.empty()) v.sentence += "differs only " + told;
    if (!differ.empty() && !broken.empty()) v.sentence += "; and ";
    v.sentence += fails;
  } else {
    if (!differ.empty()) v.sentence += "; but it differs from that " + told;
    if (!broken.empty()) v.sentence += "; but " + fails;
  }
  v.verdict = Verdict::kDiffers;
}

}  // namespace lockstep

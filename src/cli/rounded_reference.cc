#include "cli/rounded_reference.h"

#include <algorithm>
#include <set>

#include "base/memory.h"
#include "base/quoted.h"
#include "cli/onnx_taps.h"
#include "verify/compare.h"

namespace lockstep {

RoundedReference::RoundedReference(const RoundedPlaces& places, ReferenceSubject& subject,
                                   Subject& candidate, OnnxSubject& onnx)
    : places_(places), subject_(subject), candidate_(candidate), onnx_(onnx) {
  std::set<std::string> names;
  for (const auto& [id, place] : places_) {
    const WeightView* view = subject.model().weights.Find(id);
    if (view != nullptr && !place.input.empty() && names.insert(place.input).second)
      columns_ += view->cols;
  }
  names_.assign(names.begin(), names.end());
}

Status RoundedReference::Read(const PromptTrace& run, TheirInputs& out, const Progress& progress) {
  if (names_.empty()) return {};
  // The last token is not fed.
  const std::span<const int32_t> tokens(run.greedy.data(),
                                        run.greedy.empty() ? 0 : run.greedy.size() - 1);
  const uint64_t numbers =
      static_cast<uint64_t>(columns_) * static_cast<uint64_t>(run.ids.size() + tokens.size());
  // As the call gives them, and as they are kept.
  if (2 * sizeof(float) * numbers > AvailableMemory() / 2)
    return InputError("the activations of {} tokens do not fit into the memory that is left",
                      run.ids.size() + tokens.size());
  if (session_ == nullptr) {
    LS_TRY(session_, onnx_.OpenWithOutputs(names_));
  }
  const auto take = [&](int64_t first, const OnnxRun& call) -> Status {
    // Without a cache a call begins anew: of what it repeats nothing is taken.
    const int64_t repeated = onnx_.contract().caches.empty() ? first : 0;
    const int64_t count = call.length() - first + repeated;
    for (size_t i = 0; i < names_.size(); ++i) {
      const OrtTensor& value = call.extras()[i];
      const auto rows = RowsOfTokens({value.shape(), value.Floats(0, value.elements())}, count);
      if (!rows)
        return InputError("the value {} has the shape [{}], which is not {} rows",
                          Quoted(names_[i]), fmt::join(value.shape(), ", "), count);
      const auto& numbers = std::get<std::vector<float>>(rows->values);
      const int64_t columns = rows->shape.back();
      out.Append(names_[i], columns,
                 std::span(numbers).subspan(static_cast<size_t>(repeated * columns)));
    }
    const int64_t step = first < static_cast<int64_t>(run.ids.size())
                             ? 0
                             : first - static_cast<int64_t>(run.ids.size()) + 1;
    const std::vector<float> last = call.Row(call.rows() - 1);
    moved_ = std::max(moved_, MaxAbsDifference(run.StepLogits(step),
                                               std::vector<double>(last.begin(), last.end())));
    return {};
  };
  return onnx_.Along(*session_, run.ids, tokens, names_, take, progress);
}

Result<std::unique_ptr<TheirInputs>> RoundedReference::InputsAlong(const PromptTrace& theirs,
                                                                   const Progress& progress) {
  auto inputs = std::make_unique<TheirInputs>();
  if (const Status read = Read(theirs, *inputs, progress); !read) {
    if (IsInterrupted(read.error())) return tl::unexpected(read.error());
    notes_.push_back(fmt::format("{}: {}", theirs.name, read.error().message));
  }
  return inputs;
}

Result<RoundedReference::Passed> RoundedReference::RunPassage(const Probe& probe,
                                                              const Progress& progress) {
  if (names_.empty()) return UnsupportedError("no value of the graph says what was rounded");
  if (session_ == nullptr) {
    LS_TRY(session_, onnx_.OpenWithOutputs(names_));
  }
  TheirInputs inputs;
  OnnxWatch watch{.names = names_};
  watch.take = [&](const OnnxWatch::Seen& seen) -> Status {
    const auto rows = RowsOfTokens({seen.shape, seen.numbers}, seen.tokens);
    if (!rows)
      return InputError("the value {} has the shape [{}], which is not {} rows",
                        Quoted(names_[seen.value]), fmt::join(seen.shape, ", "), seen.tokens);
    const auto columns = rows->shape.back();
    inputs.Append(names_[seen.value], columns,
                  std::span(std::get<std::vector<float>>(rows->values))
                      .subspan(static_cast<size_t>(seen.begin * columns),
                               static_cast<size_t>(seen.count * columns)));
    return {};
  };
  watch.cut = [&](int64_t length) { inputs.CutBack(length); };
  LS_TRY(PromptTrace theirs, onnx_.RunWatched(*session_, probe, watch, progress));
  Probe whole = probe;
  whole.passage = Passage::kWhole;
  whole.measure_noise = true;
  const Int8Rounder rounder(places_, subject_.model().weights, &inputs);
  subject_.RoundWith(&rounder);
  auto ours = subject_.Run(whole, progress);
  subject_.RoundWith(nullptr);
  if (!ours) return tl::unexpected(std::move(ours).error());
  return Passed{*std::move(ours), std::move(theirs)};
}

Result<RoundedReference::WithHidden> RoundedReference::RunWithHidden(const Probe& probe,
                                                                     HiddenTies hidden,
                                                                     const Progress& progress) {
  Probe asked = probe;
  asked.measure_noise = asked.hidden = false;
  LS_TRY(const PromptTrace theirs, candidate_.Run(asked, progress));
  LS_TRY(const auto inputs, InputsAlong(theirs, progress));
  WithHidden out;
  const Int8Rounder rounder(places_, subject_.model().weights, inputs.get(), &out.ties, hidden);
  subject_.RoundWith(&rounder);
  auto ours = subject_.Run(asked, progress);
  subject_.RoundWith(nullptr);
  if (!ours) return tl::unexpected(std::move(ours).error());
  out.run = *std::move(ours);
  return out;
}

Result<PromptTrace> RoundedReference::Run(const Probe& probe, const Progress& progress) {
  Probe asked = probe;
  asked.measure_noise = asked.hidden = false;
  LS_TRY(const PromptTrace theirs, candidate_.Run(asked, progress));
  LS_TRY(const auto inputs, InputsAlong(theirs, progress));
  TieCounter counter;
  const Int8Rounder rounder(places_, subject_.model().weights, inputs.get(), &counter);
  subject_.RoundWith(&rounder);
  auto ours = subject_.Run(probe, progress);
  subject_.RoundWith(nullptr);
  if (!ours) return ours;
  const auto equal = std::mismatch(ours->greedy.begin(), ours->greedy.end(), theirs.greedy.begin(),
                                   theirs.greedy.end())
                         .first -
                     ours->greedy.begin();
  ties_ += counter.Count(static_cast<int64_t>(probe.ids.size()) + equal);
  return ours;
}

}  // namespace lockstep

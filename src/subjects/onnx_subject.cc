#include "subjects/onnx_subject.h"

#include <algorithm>
#include <tuple>

#include "base/quoted.h"
#include "formats/onnx_write.h"
#include "formats/ort_int8.h"
#include "subjects/onnx_passages.h"
#include "subjects/text_side.h"
#include "verify/compare.h"

namespace lockstep {
namespace {

// ONNX Runtime 1.32 ends the process on these instead of refusing them.
Status RefuseWhatCrashes(const OnnxModel& model) {
  for (const OnnxNode& node : model.nodes()) {
    if (node.op_type != "QMoE") continue;
    // Inputs: x, router, fc1 weights, fc1 scales, fc1 bias, fc2 weights, fc2 scales.
    for (const size_t slot : {3, 6})
      if (node.Input(slot).empty())
        return InputError(
            "{}: the QMoE node {} has no scales (input {}), and ONNX Runtime cannot "
            "survive that",
            model.path().string(), Quoted(node.name), slot);
    for (const size_t slot : {2, 5})
      if (const OnnxTensor* weight = model.Tensor(node.Input(slot));
          weight != nullptr && weight->dims.size() != 3)
        return InputError("{}: the weights {} of the QMoE node {} have {} dimensions, expected 3",
                          model.path().string(), Quoted(weight->name), Quoted(node.name),
                          weight->dims.size());
  }
  return {};
}

bool IsCoarse(OrtType type) { return type != OrtType::kFloat && type != OrtType::kDouble; }

// 16-bit numbers or codes between its operators, or in its cache.
bool RoundsActivations(const OnnxModel& model, const OnnxContract& contract) {
  if (IsCoarse(contract.logits_type) ||
      std::ranges::any_of(contract.caches, [](const OnnxCache& c) { return IsCoarse(c.type); }))
    return true;
  return std::ranges::any_of(model.nodes(), [&](const OnnxNode& node) {
    if (node.op_type == "DynamicQuantizeLinear" || node.op_type == "DynamicQuantizeMatMul" ||
        node.op_type == "QuantizeLinear" || node.op_type == "MatMulInteger")
      return true;
    if (node.op_type != "Cast") return RoundsInputToInt8(model, node);
    const int64_t to = node.Int("to").value_or(0);
    return (to == static_cast<int64_t>(OnnxType::kFloat16) ||
            to == static_cast<int64_t>(OnnxType::kBFloat16)) &&
           model.Tensor(node.Input(0)) == nullptr;
  });
}

// Positions of the longest sequence: what the folder says, and what the graph has room for.
std::optional<int64_t> LongestOf(const OnnxContract& contract) {
  std::optional<int64_t> most = contract.context_length;
  const auto at_most = [&](int64_t rows) {
    if (rows > 0) most = std::min(most.value_or(rows), rows);
  };
  for (const OnnxFed& fed : contract.fed)
    if (fed.what == OnnxFed::What::kMask) at_most(fed.fixed_length);
  for (const OnnxCache& cache : contract.caches)
    if (cache.kind == OnnxCache::Kind::kBuffer) at_most(cache.shape[cache.axis]);
  return most;
}

TraceTensor ToTrace(const OrtTensor& tensor) {
  return {tensor.shape(), tensor.Floats(0, tensor.elements())};
}

}  // namespace

std::vector<std::string> DescribeOnnxPrecision(const OnnxModel& model) {
  // (operator, bits, block, accuracy level, rounds its input) -> how many
  std::map<std::tuple<std::string, int64_t, int64_t, int64_t, bool>, int> seen;
  for (const OnnxNode& node : model.nodes()) {
    if (node.op_type == "MatMulNBits")
      ++seen[{node.op_type, node.Int("bits").value_or(4), node.Int("block_size").value_or(0),
              node.Int("accuracy_level").value_or(0), RoundsInputToInt8(model, node)}];
    else if (node.op_type == "QMoE")
      ++seen[{node.op_type, node.Int("expert_weight_bits").value_or(4),
              node.Int("block_size").value_or(0), node.Int("accuracy_level").value_or(0),
              RoundsInputToInt8(model, node)}];
    else if (node.op_type == "GatherBlockQuantized")
      ++seen[{node.op_type, node.Int("bits").value_or(4), node.Int("block_size").value_or(128), 0,
              false}];
  }
  std::vector<std::string> out;
  for (const auto& [what, count] : seen) {
    const auto& [op, bits, block, level, rounds] = what;
    std::string note = fmt::format("weights in {} bits, {}", bits,
                                   block > 0 ? fmt::format("block {}", block) : "a scale a row");
    if (rounds) note += ", activations int8";
    if (rounds && level > 0) note += fmt::format(" (accuracy_level {})", level);
    out.push_back(fmt::format("{}: {} {}", note, count, op));
  }
  return out;
}

template <typename Work>
auto OnnxSubject::InTime(const Progress& progress, const Work& work) const {
  const auto end = std::chrono::steady_clock::now() + timeout_;
  bool late = false;
  const Progress timed = [&](std::string_view doing, int64_t done, int64_t total) {
    late = std::chrono::steady_clock::now() >= end;
    return !late && progress(doing, done, total);
  };
  auto out = work(timed);
  if (out || (IsInterrupted(out.error()) && !late)) return out;
  Error error = late ? Error{ErrorCode::kInput,
                             fmt::format("did not answer in {} s (--timeout) and was stopped",
                                         timeout_.count())}
                     : std::move(out).error();
  return decltype(out)(tl::unexpected(std::move(error).In(model_.path().string())));
}

Result<std::unique_ptr<OnnxSubject>> OnnxSubject::Open(const std::filesystem::path& path,
                                                       int threads, std::chrono::seconds timeout) {
  LS_TRY(OnnxModel model, OnnxModel::Open(path));
  LS_TRY(const auto config, ReadGenAiConfig(model.folder()));
  LS_TRY(OnnxContract contract, ReadOnnxContract(model, config));
  LS_RETURN_IF_ERROR(RefuseWhatCrashes(model));
  LS_TRY(auto runtime, OrtRuntime::Load());
  Checkpoint folder;  // of its text files alone
  folder.path = model.folder();
  std::unique_ptr<OnnxSubject> subject(
      new OnnxSubject(std::move(model), std::move(contract), LoadTextModelOrNote(folder)));
  subject->threads_ = threads;
  subject->timeout_ = timeout;
  subject->runtime_ = std::move(runtime);
  auto session =
      OrtSession::OpenFile(subject->runtime_, subject->model_.path(), subject->Options());
  const std::string place = subject->model_.path().string();
  if (!session) return tl::unexpected(std::move(session).error().In(place));
  subject->session_ = *std::move(session);
  subject->vocab_size_ = subject->contract_.vocab_size.value_or(0);
  if (subject->vocab_size_ == 0) {  // not said anywhere: one id tells
    const auto ask = [&](const Progress& progress) -> Result<int64_t> {
      LS_TRY(OnnxRun run,
             OnnxRun::Start(subject->runtime_, *subject->session_, subject->contract_, 1));
      const int32_t id = 0;
      LS_RETURN_IF_ERROR(run.Append(std::span(&id, 1), [&] { return progress("starting", 0, 1); }));
      return run.vocab_size();
    };
    const auto go_on = [](std::string_view, int64_t, int64_t) { return true; };
    LS_TRY(subject->vocab_size_, subject->InTime(go_on, ask));
  }
  return subject;
}

OrtOptions OnnxSubject::Options() const {
  return {.threads = threads_, .external_folder = {}, .config = {}};
}

std::string OnnxSubject::Name() const {
  return fmt::format(
      "{} (ONNX Runtime {}, {})", model_.path().string(), runtime_->version(),
      contract_.logits_type == OrtType::kFloat ? "fp32" : OrtTypeName(contract_.logits_type));
}

Subject::Abilities OnnxSubject::Can() const {
  return {.any_prompt = true,
          .all_positions = !contract_.pruned_head,
          .tokenizes = text_.tokenizer.has_value(),
          .renders_chat = text_.tokenizer.has_value() && text_.chat_template.has_value(),
          .rounds_activations = RoundsActivations(model_, contract_),
          .passages = OnnxPassagesOf(model_, contract_),
          .context = LongestOf(contract_)};
}

std::vector<std::string> OnnxSubject::Notes() const {
  std::vector<std::string> notes = DescribeOnnxPrecision(model_);
  notes.insert(notes.end(), contract_.notes.begin(), contract_.notes.end());
  notes.insert(notes.end(), text_.notes.begin(), text_.notes.end());
  return notes;
}

Result<std::string> OnnxSubject::RenderChat(std::string_view user_message) const {
  return RenderUserMessage(text_, user_message);
}

Result<std::vector<int32_t>> OnnxSubject::Tokenize(const Rendered& text) const {
  return EncodeText(text_, text.text, !text.is_chat);
}

Result<PromptTrace> OnnxSubject::Run(const Probe& probe, const Progress& progress) {
  if (probe.hidden || !probe.taps.empty())
    return UnsupportedError("{}: an exported graph has no taps by the reference's names", Name());
  auto out = InTime(progress, [&](const Progress& timed) { return RunProbe(probe, timed); });
  if (out && text_.tokenizer) {
    if (auto text = DecodeIds(text_, out->greedy)) out->greedy_text = *std::move(text);
  }
  return out;
}

Result<PromptTrace> OnnxSubject::RunProbe(const Probe& probe, const Progress& progress) {
  PromptTrace out{.name = probe.name, .text = probe.text, .rendered = probe.rendered};
  out.ids = probe.ids;
  const auto count = static_cast<int64_t>(probe.ids.size()), total = count + probe.steps;
  const auto& limit = contract_.context_length;
  if (limit && count > *limit)
    return UsageError("the prompt has {} ids, and genai_config.json says a context_length of {}",
                      count, *limit);
  // The last token is not fed.
  const int64_t steps =
      limit ? std::clamp<int64_t>(*limit - count + 1, 0, probe.steps) : probe.steps;
  if (probe.passage != Passage::kWhole)
    return TakePassage(probe, steps,
                       OnnxPassages(runtime_, *session_, contract_, PaddingSideOf(model_),
                                    [&] { return progress("running", count, total); }),
                       progress);
  LS_TRY(OnnxRun run,
         OnnxRun::Start(runtime_, *session_, contract_, count + std::max<int64_t>(steps - 1, 0)));
  const auto keep_going = [&] { return progress("running", run.length(), total); };
  LS_RETURN_IF_ERROR(run.Append(probe.ids, keep_going));
  if (probe.all_positions) {
    if (run.rows() != count)
      return UnsupportedError("the graph gives logits of the last position alone");
    TraceRows<float> positions;
    for (int64_t r = 0; r < run.rows(); ++r)
      positions.Append(run.Row(r).data(), 1, static_cast<size_t>(run.vocab_size()));
    out.logits = std::move(positions).Take();
  }
  std::vector<float> row = run.Row(run.rows() - 1);
  out.steps[0] = TraceTensor{{run.vocab_size()}, row};
  for (int64_t k = 0; k < steps; ++k) {
    const TopTwo top = FindTopTwo(std::vector<double>(row.begin(), row.end()));
    out.min_top2_gap = std::min(out.min_top2_gap.value_or(top.gap), top.gap);
    out.greedy.push_back(top.first);
    if (k + 1 == steps) break;
    if (!keep_going()) return tl::unexpected(Interrupted());
    LS_RETURN_IF_ERROR(run.Append(std::span(&top.first, 1), keep_going));
    row = run.Row(run.rows() - 1);
    out.steps[k + 1] = TraceTensor{{run.vocab_size()}, row};
  }
  return out;
}

Result<std::map<std::string, TraceTensor>> OnnxSubject::Intermediates(
    std::span<const int32_t> ids, std::span<const std::string> names, const Progress& progress) {
  return InTime(progress, [&](const Progress& timed) -> Result<std::map<std::string, TraceTensor>> {
    LS_TRY(const auto session, OpenWithOutputs(names));
    const auto count = static_cast<int64_t>(ids.size());
    LS_TRY(OnnxRun run, OnnxRun::Start(runtime_, *session, contract_, count));
    LS_RETURN_IF_ERROR(run.Append(
        ids, [&] { return timed("reading intermediates", 0, count); }, names));
    std::map<std::string, TraceTensor> out;
    for (size_t i = 0; i < names.size(); ++i) out[names[i]] = ToTrace(run.extras()[i]);
    return out;
  });
}

Result<std::unique_ptr<OrtSession>> OnnxSubject::OpenWithOutputs(
    std::span<const std::string> names) const {
  LS_TRY(const std::string bytes, WithOutputs(model_, names));
  OrtOptions options = Options();
  options.external_folder = model_.folder();
  return OrtSession::OpenBytes(runtime_, std::as_bytes(std::span(bytes)), options);
}

Result<PromptTrace> OnnxSubject::RunWatched(OrtSession& session, const Probe& probe,
                                            const OnnxWatch& watch,
                                            const Progress& progress) const {
  return InTime(progress, [&](const Progress& timed) -> Result<PromptTrace> {
    const auto count = static_cast<int64_t>(probe.ids.size());
    const auto keep_going = [&] { return timed("reading its activations", count, count); };
    const auto& limit = contract_.context_length;
    const int64_t steps =
        limit ? std::clamp<int64_t>(*limit - count + 1, 0, probe.steps) : probe.steps;
    return TakePassage(
        probe, steps,
        OnnxPassages(runtime_, session, contract_, PaddingSideOf(model_), keep_going, &watch),
        timed);
  });
}

Status OnnxSubject::Along(OrtSession& session, std::span<const int32_t> ids,
                          std::span<const int32_t> tokens, std::span<const std::string> names,
                          const std::function<Status(int64_t first, const OnnxRun& run)>& take,
                          const Progress& progress) const {
  const auto total = static_cast<int64_t>(ids.size() + tokens.size());
  return InTime(progress, [&](const Progress& timed) -> Status {
    LS_TRY(OnnxRun run, OnnxRun::Start(runtime_, session, contract_, total));
    const auto keep_going = [&] { return timed("reading its activations", run.length(), total); };
    for (size_t call = 0; call <= tokens.size(); ++call) {
      const int64_t first = run.length();
      LS_RETURN_IF_ERROR(
          run.Append(call == 0 ? ids : tokens.subspan(call - 1, 1), keep_going, names));
      LS_RETURN_IF_ERROR(take(first, run));
    }
    return {};
  });
}

}  // namespace lockstep

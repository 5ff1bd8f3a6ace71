#include "cli/in_sixteen_bits.h"

#include <algorithm>

#include "cli/own_codes.h"
#include "model/apply_edit.h"
#include "spec/field_list.h"
#include "subjects/text_side.h"
#include "verify/compare.h"
#include "verify/passages.h"

namespace lockstep {
namespace {

// What the audit calls kept in fewer bits, but for matrices, which are taken as they are.
Edit KeptInFewerBits(const AuditReport& audit) {
  const auto matrix = [&](const WeightEdit& edit) {
    return edit.part == Part::kWeight &&
           std::ranges::any_of(audit.decoder.matrices,
                               [&](const auto& m) { return m.first.role == edit.role; });
  };
  Edit out;
  for (const Finding& finding : audit.findings) {
    if (finding.kind != FindingKind::kQuantized || !finding.edit) continue;
    Edit edit = *finding.edit;
    std::erase_if(edit.weights, matrix);
    std::erase_if(edit.spec, [](const FieldEdit& field) { return field.path == "lm_head.tied"; });
    out = Joined(out, edit);
  }
  return out;
}

// The largest share of what rounding does, over the prompts that need it.
double WorstShare(const Verification& v) {
  double share = 0;
  for (const PromptComparison& p : v.prompts)
    if (p.rounding && *p.rounding > 0) share = std::max(share, p.max_abs() / *p.rounding);
  return share;
}

// No prompt that both answered differs. What could not be answered, and other ids for a text, are
// another matter, and stay the verdict.
bool Explains(const Verification& v) {
  return std::ranges::any_of(v.prompts,
                             [](const PromptComparison& p) {
                               return p.verdict == Verdict::kMatch ||
                                      p.verdict == Verdict::kPrecision;
                             }) &&
         !PromptsDiffer(v);
}

bool HasCodes(const AuditReport& audit) {
  return std::ranges::any_of(audit.weights, [](const auto& weight) {
    return weight.second.state == WeightState::kQuantized;
  });
}

void Take(Verification&& explained, Verdict verdict, std::string sentence, Verification& v) {
  const bool answered = explained.verdict != Verdict::kDifferentTokens &&
                        explained.verdict != Verdict::kSubjectFailed &&
                        explained.verdict != Verdict::kNotComparable;
  v.verdict = answered ? verdict : explained.verdict;
  v.sentence = answered ? std::move(sentence)
                        : fmt::format("{}; otherwise {}", explained.sentence, sentence);
  v.prompts = std::move(explained.prompts);
  v.passages = std::move(explained.passages);
  ConcludePassages(v);
}

Status CompareNumbers(const ReferenceSubject& reference, OnnxSubject& onnx,
                      const AuditReport& audit, Subject& candidate, const VerifyOptions& options,
                      InSixteenBits& out, Verification& v, ThreadPool& pool,
                      const Progress& progress) {
  LS_TRY(out.own, WithWeightsOf(reference.model(), onnx.model(), audit));
  Model model = out.own.model;
  const Edit kept = KeptInFewerBits(audit);
  if (!kept.empty()) {
    LS_TRY(model, Edited(out.own.model, kept));
  }
  if (out.own.replaced > 0 || !kept.empty())
    out.base = "with weights and constants as the candidate keeps them";
  out.formulas =
      ReferenceSubject::Create(std::move(model), LoadTextModelOrNote(reference.model().checkpoint),
                               pool, ReferenceSubject::Precision::kFloat, reference.run());
  out.candidate = std::make_unique<SixteenBitSubject>(candidate, *out.formulas, out.bits);
  LS_TRY(Verification seen, Verify(*out.formulas, *out.candidate, options, progress));
  const double share = WorstShare(seen), worst = WorstOf(seen);
  if (!Explains(seen)) {
    if (share > 0)
      v.notes.push_back(fmt::format(
          "{} explain a part at most: {}{}its logits are {:.2e} from the reference's, up "
          "to {:.3g} times what such rounding does to the reference ({} are allowed)",
          out.bits.Words(), out.base, out.base.empty() ? "" : ", ", worst, share,
          kRoundingMultiple));
    return {};
  }
  const bool codes = HasCodes(audit);
  const std::string before =
      out.base.empty() ? "" : fmt::format(", {:.2e} on the checkpoint's weights", WorstOf(v));
  Take(std::move(seen), codes ? Verdict::kQuantizedWeights : Verdict::kPrecision,
       fmt::format("the same model {}in 16 bits: {}{}its logits lie within {:.2g} times what "
                   "rounding every number to {} does to the reference's own (max |Δ| {:.2e}{}; {} "
                   "times are allowed); a fault smaller than that cannot show in its logits",
                   codes ? "with weights in fewer bits, and " : "", out.base,
                   out.base.empty() ? "" : ", ", share, NameOf(out.bits.numbers), worst, before,
                   kRoundingMultiple),
       v);
  return {};
}

Status CompareCache(const ReferenceSubject& reference, Subject& candidate,
                    const VerifyOptions& options, InSixteenBits& out, Verification& v,
                    ThreadPool& pool, const Progress& progress) {
  RunSpec run = reference.run();
  run.kv_dtype = out.bits.cache == Rounding::kFP16 ? KvDType::kF16 : KvDType::kBF16;
  run.kv_rounded_after_call = true;
  const std::string_view type = out.bits.cache == Rounding::kFP16 ? "f16" : "bf16";
  out.cache = {.edit = {.run = {{"kv_dtype", fmt::format("\"{}\"", type)},
                                {"kv_rounded_after_call", "true"}}},
               .origin = Origin::kAudit,
               .id = {},
               .sentence = fmt::format("keys and values are kept with {}", out.bits.Words())};
  const auto rounded =
      ReferenceSubject::Create(reference.model(), LoadTextModelOrNote(reference.model().checkpoint),
                               pool, ReferenceSubject::Precision::kFloat, run);
  const auto plain =
      ReferenceSubject::Create(reference.model(), LoadTextModelOrNote(reference.model().checkpoint),
                               pool, ReferenceSubject::Precision::kFloat, reference.run());
  SixteenBitSubject owning(candidate, *plain, out.bits);
  const double before = WorstOf(v);
  LS_TRY(Verification seen, Verify(*rounded, owning, options, progress));
  if (!Explains(seen)) {
    v.notes.push_back(fmt::format(
        "with its cache rounded likewise the reference is {:.2e} from its logits", WorstOf(seen)));
    return {};
  }
  const double worst = WorstOf(seen), share = WorstShare(seen);
  Take(std::move(seen), Verdict::kPrecision,
       fmt::format("the same model with {}: with keys and values rounded likewise the reference "
                   "gives its logits to {:.1e} ({:.2e} without{})",
                   out.bits.Words(), worst, before,
                   share > 0 ? fmt::format("; {:.2g} times what that rounding does, {} are allowed",
                                           share, kRoundingMultiple)
                             : ""),
       v);
  return {};
}

}  // namespace

Result<std::optional<InSixteenBits>> CompareInSixteenBits(
    const ReferenceSubject& reference, OnnxSubject& onnx, const AuditReport& audit,
    Subject& candidate, const VerifyOptions& options, Verification& v, ThreadPool& pool,
    const Progress& progress) {
  InSixteenBits out{.bits = SixteenBitsOf(onnx.model(), onnx.contract())};
  if (const std::string island = out.bits.Island(); !island.empty()) v.notes.push_back(island);
  if (!out.bits.any()) return std::nullopt;
  const Status compared =
      out.bits.numbers != Rounding::kNone
          ? CompareNumbers(reference, onnx, audit, candidate, options, out, v, pool, progress)
          : CompareCache(reference, candidate, options, out, v, pool, progress);
  if (!compared && IsInterrupted(compared.error())) return tl::unexpected(compared.error());
  if (!compared) {
    v.notes.push_back(
        fmt::format("what 16 bits do was not measured: {}", compared.error().message));
    if (out.formulas == nullptr && out.cache.edit.empty()) return std::nullopt;
  }
  return out;
}

}  // namespace lockstep

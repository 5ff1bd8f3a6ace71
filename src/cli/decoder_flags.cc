#include "cli/decoder_flags.h"

#include "cli/options.h"
#include "spec/rope_facts.h"
#include "subjects/engine_decoder.h"
#include "subjects/reference_decoder.h"

namespace lockstep {

std::string OpenedDecoder::LookupWords() const {
  if (lookup == nullptr) return "";
  return fmt::format("; {} of {} drafted tokens accepted", lookup->counts().accepted,
                     lookup->counts().proposed);
}

void DecoderFlags::AddTo(CLI::App& verb) {
  verb.add_flag("--reference", reference_,
                "Compute with the reference (plain loops, slow) instead of the engine");
  engine_.AddTo(verb);
  verb.add_flag("--lookup", lookup_,
                "Draft what followed the last words earlier in the text. The answer is the same,\n"
                "and sooner where it repeats its prompt or itself");
}

Status DecoderFlags::Check(const Model& model) const {
  const std::string given =
      engine_.FirstGiven().empty() && lookup_ ? "--lookup" : engine_.FirstGiven();
  if (reference_ && !given.empty())
    return UsageError("{} is the engine's and means nothing to --reference; leave one of them out",
                      given);
  if (lookup_ && DependsOnCallLength(model.spec))
    return UsageError(
        "{}: --lookup would change the answer: with this model's RoPE scaling a token's numbers "
        "depend on the tokens that are computed with it; leave it out",
        model.checkpoint.path.string());
  return {};
}

Result<OpenedDecoder> DecoderFlags::Open(const Model& model, OnProgress on_progress) const {
  LS_RETURN_IF_ERROR(Check(model));
  OpenedDecoder out;
  if (reference_) {
    out.name = "reference, fp32";
    out.pool = std::make_unique<ThreadPool>(ThreadCount(engine_.threads));
    out.decoder = std::make_unique<ReferenceDecoder>(model, *out.pool, std::move(on_progress));
    return out;
  }
  LS_TRY(auto engine, EngineDecoder::Create(model, engine_.Options(), std::move(on_progress)));
  out.name = engine->engine().Describe();
  out.note = engine->note();
  if (!lookup_) {
    out.decoder = std::move(engine);
    return out;
  }
  auto drafting = std::make_unique<LookupDecoder>(*engine);
  out.lookup = drafting.get();
  out.decoder = std::move(drafting);
  out.engine = std::move(engine);
  return out;
}

}  // namespace lockstep

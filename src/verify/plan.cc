#include <algorithm>
#include <iterator>

#include "verify/probes.h"
#include "verify/verify.h"

namespace lockstep {
namespace {

std::string Listed(const std::vector<int32_t>& ids, size_t at) {
  const size_t end = std::min(ids.size(), at + 4);
  if (at >= ids.size()) return "the end";
  return fmt::format("{}{}",
                     fmt::join(ids.begin() + static_cast<std::ptrdiff_t>(at),
                               ids.begin() + static_cast<std::ptrdiff_t>(end), " "),
                     end < ids.size() ? " ..." : "");
}

// Empty when equal.
std::string TokenFault(std::string_view who_a, const std::vector<int32_t>& a,
                       std::string_view who_b, const std::vector<int32_t>& b) {
  if (a == b) return "";
  const size_t at =
      static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  return fmt::format("ids differ from position {} on: {} has {}, {} has {} ({} and {} ids)", at,
                     who_a, Listed(a, at), who_b, Listed(b, at), a.size(), b.size());
}

// Prompts that a recording holds. What else is at hand checks their ids and their rendering.
Result<ProbePlan> PlanRecorded(const Subject& reference, const Subject& candidate,
                               const VerifyOptions& options) {
  ProbePlan plan;
  const Subject& first = reference.Can().any_prompt ? candidate : reference;
  if (!options.prompts.empty())
    return UsageError(
        "{} has prompts of its own and runs no others: leave further prompts out, or record them",
        first.Name());
  plan.probes = reference.RecordedProbes();
  const bool reference_recorded = !plan.probes.empty();
  if (!reference_recorded) plan.probes = candidate.RecordedProbes();
  const Subject& recording = reference_recorded ? reference : candidate;
  const Subject& other = reference_recorded ? candidate : reference;
  const std::vector<Probe> others = other.RecordedProbes();
  plan.token_faults.resize(plan.probes.size());
  if (options.chat)
    plan.notes.push_back(
        fmt::format("{} has prompts of its own: the chat option has no effect", recording.Name()));
  bool template_noted = false;
  for (size_t i = 0; i < plan.probes.size(); ++i) {
    Probe& probe = plan.probes[i];
    probe.steps = std::min(probe.steps, options.steps);
    if (probe.name.empty()) probe.name = fmt::format("prompt {}", i);
    if (!others.empty()) {
      const auto same = [&](const Probe& x) { return x.ids == probe.ids; };
      if (std::any_of(others.begin(), others.end(), same)) continue;
      // The same question with other ids, or an index in common where nothing has a name.
      for (size_t j = 0; j < others.size(); ++j) {
        const bool named = others[j].name == probe.name ||
                           (others[j].text && probe.text && *others[j].text == *probe.text) ||
                           (others[j].name.empty() && i == j);
        if (named)
          plan.token_faults[i] =
              TokenFault(recording.Name(), probe.ids, other.Name(), others[j].ids);
      }
      continue;
    }
    if (!other.Can().tokenizes || !probe.rendered) continue;
    const bool is_chat = !probe.text || *probe.text != *probe.rendered;
    if (const auto ids = other.Tokenize({*probe.rendered, is_chat}))
      plan.token_faults[i] = TokenFault(recording.Name(), probe.ids, other.Name(), *ids);
    else
      plan.token_faults[i] = ids.error().message;
    if (!is_chat || !other.Can().renders_chat || template_noted) continue;
    // A template may print today's date, so this alone is no verdict.
    const auto rendered = other.RenderChat(*probe.text);
    if (!rendered || *rendered != *probe.rendered) {
      template_noted = true;
      plan.notes.push_back(fmt::format(
          "the chat template of {} renders \"{}\" differently from {}{}", other.Name(), probe.name,
          recording.Name(), rendered ? "" : fmt::format(": {}", rendered.error().message)));
    }
  }
  return plan;
}

// The prompts where nobody gave any.
Result<std::vector<NamedPrompt>> OwnPrompts(const Subject& a, const Subject& b,
                                            const VerifyOptions& options,
                                            std::vector<std::string>& notes) {
  const ModelSpec* spec = a.spec() != nullptr ? a.spec() : b.spec();
  // Where a checkpoint has no tokenizer, that of an export is a stand-in.
  const bool ids = !a.Can().tokenizes && (a.spec() != nullptr || !b.Can().tokenizes);
  const int64_t vocab = std::max(a.vocab_size(), b.vocab_size());
  if (ids && vocab <= 0)
    return UsageError(
        "neither {} nor {} has a tokenizer or says how many tokens it knows: give prompts as token "
        "ids",
        a.Name(), b.Name());
  if (ids)
    notes.push_back(fmt::format("{} has {}tokenizer: both run made-up ids",
                                b.Can().tokenizes ? "the reference" : "neither side",
                                b.Can().tokenizes ? "no " : "a "));
  std::vector<NamedPrompt> prompts = ids ? BuiltInIds(vocab) : BuiltInPrompts();
  if (options.longest <= 0) return prompts;
  if (!ids) prompts.insert(prompts.end(), TokenizerPrompts().begin(), TokenizerPrompts().end());
  if (spec == nullptr) return prompts;
  std::vector<int32_t> words;
  if (!ids) {
    const Subject& tokenizer = a.Can().tokenizes ? a : b;
    for (const NamedPrompt& prompt : BuiltInPrompts())
      if (const auto text = tokenizer.Tokenize({prompt.text, false}))
        words.insert(words.end(), text->begin(), text->end());
  }
  if (words.empty()) words = BuiltInIds(vocab).back().ids;
  DerivedProbes derived = DeriveProbes(*spec, words, options.steps, options.longest);
  std::move(derived.prompts.begin(), derived.prompts.end(), std::back_inserter(prompts));
  std::move(derived.notes.begin(), derived.notes.end(), std::back_inserter(notes));
  return prompts;
}

}  // namespace

Result<ProbePlan> PlanProbes(const Subject& reference, const Subject& candidate,
                             const VerifyOptions& options) {
  if (!reference.Can().any_prompt || !candidate.Can().any_prompt)
    return PlanRecorded(reference, candidate, options);

  ProbePlan plan;
  const Subject* a = &reference;
  const Subject* b = &candidate;
  const bool no_text = !a->Can().tokenizes && !b->Can().tokenizes;
  std::vector<NamedPrompt> prompts = options.prompts;
  if (prompts.empty()) {
    LS_TRY(prompts, OwnPrompts(*a, *b, options, plan.notes));
  }
  const bool asks_text = std::any_of(prompts.begin(), prompts.end(),
                                     [](const NamedPrompt& p) { return p.ids.empty(); });
  const bool alone = a == b;
  const std::string sides =
      alone ? a->Name() + " has no" : fmt::format("neither {} nor {} has a", a->Name(), b->Name());
  if (no_text && asks_text) {
    const auto why = a->Tokenize({});
    return UsageError("{} tokenizer ({}): give prompts as token ids", sides,
                      why ? "" : why.error().message);
  }
  if (asks_text && a->Can().tokenizes != b->Can().tokenizes) {
    const Subject& lacking = a->Can().tokenizes ? *b : *a;
    plan.notes.push_back(
        fmt::format("{} has no tokenizer: both run the other's ids", lacking.Name()));
  }
  const bool templates = a->Can().renders_chat || b->Can().renders_chat;
  const bool chat = options.chat.value_or(templates);
  if (asks_text && chat && !templates)
    return UsageError("{} chat template: give prompts as raw text", sides);
  if (asks_text && chat && a->Can().renders_chat != b->Can().renders_chat) {
    const Subject& lacking = a->Can().renders_chat ? *b : *a;
    plan.notes.push_back(
        fmt::format("{} has no chat template: both read the other's rendering", lacking.Name()));
  }
  for (const NamedPrompt& prompt : prompts) {
    Probe probe;
    probe.name = prompt.name;
    if (!prompt.ids.empty()) {
      probe.ids = prompt.ids;
      probe.steps = options.steps;
      plan.probes.push_back(std::move(probe));
      plan.token_faults.emplace_back();
      continue;
    }
    probe.text = prompt.text;
    probe.steps = options.steps;
    std::string fault;
    // Each side renders and tokenizes by itself; the first that can is what both will run.
    std::optional<std::string> rendered[2];
    std::optional<std::vector<int32_t>> ids[2];
    const Subject* sides[2] = {a, b};
    for (int s = 0; s < 2; ++s) {
      if (!chat) {
        rendered[s] = prompt.text;
      } else if (sides[s]->Can().renders_chat) {
        LS_TRY(rendered[s], sides[s]->RenderChat(prompt.text));
      }
    }
    if (rendered[0] && rendered[1] && *rendered[0] != *rendered[1])
      fault = fmt::format("the chat templates differ: {} and {} bytes, the same up to byte {}",
                          rendered[0]->size(), rendered[1]->size(),
                          std::mismatch(rendered[0]->begin(), rendered[0]->end(),
                                        rendered[1]->begin(), rendered[1]->end())
                                  .first -
                              rendered[0]->begin());
    for (int s = 0; s < 2; ++s) {
      if (!rendered[s]) rendered[s] = rendered[1 - s];
      if (!sides[s]->Can().tokenizes) continue;
      LS_TRY(ids[s], sides[s]->Tokenize({*rendered[s], chat}));
    }
    if (ids[0] && ids[1] && *ids[0] != *ids[1]) {
      const std::string difference = TokenFault(a->Name(), *ids[0], b->Name(), *ids[1]);
      fault = fault.empty() ? difference : fault + "; " + difference;
    }
    const int chosen = ids[0] ? 0 : 1;
    probe.rendered = rendered[chosen];
    probe.ids = *ids[chosen];
    if (probe.ids.empty())
      return UsageError("prompt \"{}\": no tokens, nothing to run", probe.name);
    plan.probes.push_back(std::move(probe));
    plan.token_faults.push_back(std::move(fault));
  }
  if (plan.probes.empty()) return UsageError("no prompts to compare on");
  return plan;
}

}  // namespace lockstep

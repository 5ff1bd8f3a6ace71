// Verify: is the candidate the same model as the reference? For every prompt the two run by
// themselves, greedily and without penalties, and are compared while they still choose the same
// tokens. The answer is a verdict with its numbers; docs/numerics.md says where the tolerance comes
// from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "verify/compare.h"
#include "verify/subject.h"

namespace lockstep {

enum class Verdict {
  kMatch,  // every compared logit within the tolerance; a greedy flip only at a near tie
  // Beyond the tolerance, and within what the rounding that a side owns up to does to the
  // reference's own formulas: the same model, less exactly.
  kPrecision,             // 16-bit cache, bf16 activations: Precision::kRounded
  kQuantizedActivations,  // Precision::kQuantizedActivations
  // A match, once the reference has the candidate's own codes for weights.
  kQuantizedWeights,
  kDiffers,          // at least one is not
  kDifferentTokens,  // tokenizer or chat template give the two other ids for the same text
  kSubjectFailed,    // one of the two gave an error, or something that is no number
  kNotComparable,    // the two have no logits of a common position: there is no answer
};
std::string_view VerdictName(Verdict verdict);  // "match", "differs", "different tokens", ...

enum class NoiseSource {
  kMeasured,             // by the reference: its fp32 against its fp64, on this prompt
  kMeasuredOnCandidate,  // likewise by the candidate, where the reference is a trace without noise
  kRecorded,             // what the reference's trace says of itself
  kAssumed,              // nobody measured it: AssumedNoise
  kBounded,              // recorded, and more than is plausible: kPlausibleNoise
};
std::string_view NoiseSourceName(NoiseSource source);

struct StepComparison {
  int64_t step = 0;  // 0 is the end of the prompt
  RowDifference difference;
};

// Where the two chose different tokens.
struct Parting {
  int64_t step = 0;
  int32_t reference_token = 0, candidate_token = 0;
  // From the reference's best logit there down to that of the candidate's token, where known.
  std::optional<double> gap;
  bool near_tie = false;  // the gap is so small that rounding alone decides
};

struct PromptComparison {
  std::string name;
  Verdict verdict = Verdict::kMatch;
  std::string sentence;  // why, with numbers
  int64_t tokens = 0;    // of the prompt
  double noise = 0;
  NoiseSource noise_source = NoiseSource::kAssumed;
  std::optional<double> claimed_noise;  // kBounded: what the recording says
  double tolerance = 0;
  // Where logits lay beyond the tolerance and a side rounds more than fp32: what that does to the
  // reference's formulas here, as measured.
  std::optional<double> rounding;
  std::optional<double> positions_max_abs;  // over every prompt position, where both have them
  std::vector<StepComparison> steps;        // those both have logits for, while they agree
  // A side shows the log-probabilities of a few ids alone: of some step these were compared.
  bool shown_only = false;
  // max |Δ| of the last prompt position's hidden states, where both have them: the embedding, then
  // each layer, the last one after the final norm.
  std::vector<double> layers_max_abs;
  int64_t greedy_compared = 0;  // tokens both gave, at most options.steps
  int64_t greedy_equal = 0;     // the first so many are the same
  std::optional<Parting> parting;

  const StepComparison* WorstStep() const;  // nullptr when no step was compared
  double max_abs() const;                   // over positions and steps
  double allowed() const;                   // the tolerance, and what the rounding explains
  double max_kl() const;
  int64_t top1_equal() const;  // of steps
};

// A prompt that reached the candidate by another way than whole. Its logits are compared with the
// reference's where those of the plain run agree with it, else with the plain run's own.
struct PassageComparison {
  Passage passage = Passage::kChunked;
  std::string prompt;  // its name
  std::string how;     // "when the prompt comes in calls of 1, 3 and 4 tokens"
  // kNotComparable: the candidate says that it cannot take it; kSubjectFailed: it announced the way
  // and broke on it.
  Verdict verdict = Verdict::kMatch;
  std::string sentence;   // with numbers; of what could not be taken the error
  bool left_out = false;  // kNotComparable without being asked; `sentence` says why
  double max_abs = 0, allowed = 0;
  // Of a difference, where both ways can be asked for logits of every position: the first id of the
  // prompt behind which they lie too far apart.
  std::optional<int64_t> first_position;
};

struct Verification {
  std::string reference, candidate;  // names
  Verdict verdict = Verdict::kMatch;
  std::string sentence;
  std::vector<PromptComparison> prompts;
  std::vector<PassageComparison> passages;  // verify/passages.h; those asked
  std::vector<std::string> notes;           // what a person should know and no error
};

struct NamedPrompt {
  std::string name;
  std::string text;
  std::vector<int32_t> ids;  // not empty: these, and no text
};
// Plain English, rare words, Chinese and English mixed, and two Persian: five scripts and lengths
// of tokens that tokenizers and long rotations get wrong. The recorded traces use the same.
const std::vector<NamedPrompt>& BuiltInPrompts();

// For models without a tokenizer: the same ids every time, of three lengths, below `vocab_size`.
std::vector<NamedPrompt> BuiltInIds(int64_t vocab_size);

struct VerifyOptions {
  // Empty: the built-in ones. A recording's own take their place.
  std::vector<NamedPrompt> prompts;
  std::optional<bool> chat;  // through the chat template; absent: when a side has one
  int64_t steps = 20;        // greedy tokens
  bool hidden = false;       // hidden states as well, where both sides have them
  // Where prompts are the built-in ones, also those that the model's facts ask for (DeriveProbes)
  // of at most so many tokens, and what tokenizers get wrong; 0: none.
  int64_t longest = 0;
  bool passages = true;  // also by the other ways that the candidate can take (verify/passages.h)
};

// What both sides will be asked, and what the two tokenizers disagree about.
struct ProbePlan {
  std::vector<Probe> probes;
  std::vector<std::string> token_faults;  // beside probes: a sentence, or empty
  std::vector<std::string> notes;
};
// The same subject on both sides plans a run of that one alone. Prompts in the options are refused
// where a side is a recording.
Result<ProbePlan> PlanProbes(const Subject& reference, const Subject& candidate,
                             const VerifyOptions& options);

// Which side's `noise` was measured now, by a model that ran, and not read from a file.
struct Measured {
  bool reference = false, candidate = false;
};
// What a recording says of its noise, for logits of this size. Where it does not, the candidate's
// own is asked for.
bool PlausibleNoise(const PromptTrace& recording);

// What less precision does on a prompt, measured (Subject::MeasureRounding).
struct RoundingEffect {
  Precision precision = Precision::kFull;
  double max_abs = 0;
};
// Compares two runs of one prompt. `steps` bounds the greedy tokens that count. The noise is the
// reference's; the candidate's counts only where it was measured and the reference has none.
PromptComparison CompareRuns(const PromptTrace& reference, const PromptTrace& candidate,
                             int64_t steps, Measured measured = {},
                             const std::optional<RoundingEffect>& rounding = {});

// Some prompt does, put as ever; not only another way of filling the cache.
bool PromptsDiffer(const Verification& v);
// max |Δ| over all prompts and steps.
double WorstOf(const Verification& v);

// Of a side that cannot even be opened.
Verification FailedVerification(std::string reference, std::string candidate, const Error& error);

// Fails only when nothing can be asked at all (no prompts, Ctrl-C); a subject's error is a verdict.
Result<Verification> Verify(Subject& reference, Subject& candidate, const VerifyOptions& options,
                            const Progress& progress);

}  // namespace lockstep

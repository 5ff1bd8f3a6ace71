// Subject: whoever can be compared: a model under our reference, the engine, a recorded trace,
// another runtime, a program, a server. verify sees nothing else of them. Implementations are in
// subjects/.
//
// A subject that fails is a verdict, never a crash: everything it does returns a Result.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "spec/model_spec.h"
#include "spec/taps.h"
#include "trace/trace.h"

namespace lockstep {

// How a sequence reaches a model. The same sequence must give the same logits by every way.
enum class Passage : uint8_t {
  kWhole,        // the prompt in one call (or in such as the program chooses), then token by token
  kChunked,      // the prompt in calls of Probe::parts
  kRewound,      // after the prompt Probe::other, then the cache is cut back to the prompt
  kInterleaved,  // in turn with Probe::other, another sequence with a cache of its own
  kPaddedBatch,  // in one batch with Probe::other, a longer sequence, padded to its length
};
// As reports and probe files have it: "whole", "parts", "rewound", "interleaved", "padded_batch".
std::string_view PassageName(Passage passage);
std::optional<Passage> PassageNamed(std::string_view name);

// One prompt put to a subject. The ids are given, so that a difference of tokenizers is found
// before and not taken for a difference of models.
struct Probe {
  std::string name;
  std::optional<std::string> text;      // what a person asked
  std::optional<std::string> rendered;  // what was tokenized
  std::vector<int32_t> ids;             // never empty
  int64_t steps = 20;                   // greedy tokens after the prompt
  bool all_positions = false;           // logits of every prompt position, not of the last alone
  bool measure_noise = false;           // also run in fp64 and report max |fp32 - fp64|
  bool hidden = false;                  // hidden states of every layer
  std::vector<TapPlace> taps;           // intermediates of the prompt
  // Of another way than whole neither hidden states nor taps nor noise are asked for.
  Passage passage = Passage::kWhole;
  std::vector<int64_t> parts;  // kChunked: ids of each call, together all
  // kRewound: tokens to be forgotten. kInterleaved, kPaddedBatch: the other sequence's prompt; its
  // tokens after that are its ids over again. Not empty.
  std::vector<int32_t> other;
};

// What a subject keeps of the numbers in between, by its own account.
enum class Precision : uint8_t {
  kFull,                  // fp32 or better: only the order of additions differs from others'
  kRounded,               // the same math with other rounding: a 16-bit cache, bf16 activations
  kQuantizedActivations,  // codes in front of quantized weights
};

// How a chat template or plain text becomes ids.
struct Rendered {
  std::string text;
  bool is_chat =
      false;  // special tokens are in the text already; otherwise the tokenizer adds its own
};

// Called now and then from the thread that runs. Returning false asks the subject to stop; it then
// fails with Interrupted().
using Progress = std::function<bool(std::string_view doing, int64_t done, int64_t total)>;
Error Interrupted();
bool IsInterrupted(const Error& error);

class Subject {
 public:
  // What can be asked. Nobody calls the rest.
  struct Abilities {
    bool any_prompt = false;     // runs whatever ids it is given
    bool all_positions = false;  // can give logits of every prompt position
    bool tokenizes = false;      // Tokenize works
    bool renders_chat = false;   // RenderChat works
    bool measures_noise = false;
    bool hidden = false;  // can give hidden states of every layer
    Precision precision = Precision::kFull;
    // Its activations are rounded on the way, whether or not MeasureRounding can say how far.
    bool rounds_activations = false;
    std::vector<Passage> passages;   // besides kWhole
    std::optional<int64_t> context;  // positions of the longest sequence, where known
  };

  virtual ~Subject() = default;
  // Starts what must run before anything can be asked (a process, a connection): what the others
  // say counts from then on. May be called again.
  virtual Status Prepare(const Progress&) { return {}; }

  virtual std::string Name() const = 0;  // "smollm2.gguf (reference, fp32)"
  virtual Abilities Can() const = 0;
  virtual int64_t vocab_size() const = 0;  // columns of its logits; 0: not known before it ran
  // The facts of the model that runs, where they are known; owned by the subject.
  virtual const ModelSpec* spec() const { return nullptr; }
  // What a person should know of it and no error (keys that nothing read, ...). Sentences.
  virtual std::vector<std::string> Notes() const { return {}; }

  // The prompts a recording holds; empty for what runs any prompt.
  virtual std::vector<Probe> RecordedProbes() const { return {}; }

  // One user message through the chat template, up to where the answer begins.
  virtual Result<std::string> RenderChat(std::string_view user_message) const;
  virtual Result<std::vector<int32_t>> Tokenize(const Rendered& text) const;

  // Runs a probe from an empty state. A recording knows only its own prompts.
  virtual Result<PromptTrace> Run(const Probe& probe, const Progress& progress) = 0;

  // Below full precision: how far rounding as it does moves the logits of the reference's own
  // formulas (max |Δ|), at the positions of `run`, on its ids and greedy tokens. Measured on the
  // formulas, so that a mistake of the subject is no excuse for itself. What is found to be
  // `enough` need not be measured further.
  virtual Result<double> MeasureRounding(const PromptTrace& run, double enough,
                                         const Progress& progress);
};

}  // namespace lockstep

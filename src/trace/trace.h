// Trace: what one run of a model gave, prompt by prompt: ids, logits, greedy tokens, intermediates.
// Filled by subjects (a model that runs) or by ReadTrace (a run recorded by anybody); compared by
// verify. docs/formats/trace.md draws the file.
//
// Numbers keep the precision they came in: float, or double for a run in fp64.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"

namespace lockstep {

// A tensor of at most four dimensions that owns its numbers.
struct TraceTensor {
  std::vector<int64_t> shape;
  std::variant<std::vector<float>, std::vector<double>> values;

  int64_t elements() const;  // the product of shape; values has as many
  int64_t row_length() const { return shape.empty() ? 1 : shape.back(); }
  int64_t num_rows() const;  // elements / row_length; a tensor has rows of its last dimension
  std::vector<double> Row(int64_t row) const;
};

// The rows of a [rows, cols] tensor, appended call by call.
template <typename T>
class TraceRows {
 public:
  void Append(const T* data, size_t rows, size_t cols) {
    values_.insert(values_.end(), data, data + rows * cols);
    rows_ += rows;
    cols_ = cols;
  }
  size_t rows() const { return rows_; }
  TraceTensor Take() && {
    return {{static_cast<int64_t>(rows_), static_cast<int64_t>(cols_)}, std::move(values_)};
  }

 private:
  std::vector<T> values_;
  size_t rows_ = 0, cols_ = 0;
};

// What a server shows of a step: the log-probabilities of a few ids, the most probable first.
struct SparseRow {
  std::vector<int32_t> ids;
  std::vector<double> logprobs;  // as many
};

struct PromptTrace {
  std::string name;                      // "plain"; empty when nobody named it
  std::optional<std::string> text;       // what the user asked
  std::optional<std::string> rendered;   // what was tokenized: `text` through a chat template
  std::vector<int32_t> ids;              // the prompt, as the model read it; never empty
  std::optional<TraceTensor> logits;     // [ids, vocab]: one forward over the whole prompt
  std::map<int64_t, TraceTensor> steps;  // k -> [vocab]: the logits that chose greedy[k]
  std::map<int64_t, SparseRow> shown;    // k -> what is known of a step without logits; not stored
  std::vector<int32_t> greedy;           // greedy continuation with a KV cache, no penalties
  std::optional<std::string> greedy_text;   // the same as text
  std::optional<double> noise;              // max |fp32 - fp64| of these logits
  std::optional<double> min_top2_gap;       // the closest the two best logits of a step came
  std::optional<TraceTensor> hidden;        // [layers + 1, ids, hidden]: see docs/formats/trace.md
  std::optional<TraceTensor> hidden_last;   // [layers + 1, hidden]: of the last prompt position
  std::map<std::string, TraceTensor> taps;  // TapName (spec/taps.h) -> [ids, columns]

  // Columns of the logits; 0 when there are none.
  int64_t vocab_size() const;
  // The logits that chose greedy[step]; step 0 falls back on the last row of `logits`. Empty when
  // they were not recorded.
  std::vector<double> StepLogits(int64_t step) const;
};

struct Trace {
  std::string source;                           // the file, or the subject that ran
  std::map<std::string, std::string> metadata;  // "model", "subject", "dtype", ...: for people
  std::vector<PromptTrace> prompts;
};

// Reads X.safetensors and, when it lies beside, X.json, and checks each against the other: shapes,
// ids inside the vocabulary, one vocabulary per trace. Knows the three forms of
// docs/formats/trace.md.
Result<Trace> ReadTrace(const std::filesystem::path& path);

// True when the file at `path` is a safetensors file that holds a trace (and not weights).
bool IsTrace(const std::filesystem::path& path);

// Writes X.safetensors and X.json, each atomically. The same trace gives the same bytes.
Status WriteTrace(const std::filesystem::path& path, const Trace& trace);

}  // namespace lockstep

#include "subjects/reference_passages.h"

#include "spec/rope_facts.h"

namespace lockstep {
namespace {

template <typename T>
class ReferenceSequence : public PassageSequence {
 public:
  ReferenceSequence(Interpreter<T>& interpreter, const Rounder<T>* rounder)
      : interpreter_(interpreter), rounder_(rounder), sequence_(interpreter.NewSequence()) {}

  Result<LogitRows> Append(std::span<const int32_t> ids, bool all) override {
    LS_TRY(const auto logits,
           interpreter_.Append(sequence_, ids, all ? LogitsFor::kAll : LogitsFor::kLast, nullptr,
                               rounder_));
    LogitRows out;
    for (size_t r = 0; r < logits.rows; ++r) {
      const std::span<const T> row = logits.row(r);
      out.emplace_back(row.begin(), row.end());
    }
    return out;
  }

  Status CutBack(int64_t length) override {
    interpreter_.Truncate(sequence_, length);
    return {};
  }

 private:
  Interpreter<T>& interpreter_;
  const Rounder<T>* rounder_;
  Sequence<T> sequence_;
};

}  // namespace

std::vector<Passage> ReferencePassagesOf(const ModelSpec& spec) {
  if (DependsOnCallLength(spec)) return {Passage::kInterleaved};
  return {Passage::kChunked, Passage::kRewound, Passage::kInterleaved};
}

template <typename T>
PassageMaker ReferencePassages(Interpreter<T>& interpreter, const Rounder<T>* rounder) {
  return {.sequence = [&interpreter, rounder](int64_t) -> Result<std::unique_ptr<PassageSequence>> {
            return std::make_unique<ReferenceSequence<T>>(interpreter, rounder);
          },
          .batch = {}};
}

template PassageMaker ReferencePassages(Interpreter<float>&, const Rounder<float>*);
template PassageMaker ReferencePassages(Interpreter<double>&, const Rounder<double>*);

}  // namespace lockstep

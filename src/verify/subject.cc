#include "verify/subject.h"

#include <algorithm>
#include <iterator>

namespace lockstep {
namespace {

struct PassageRow {
  Passage passage;
  std::string_view name;
};
constexpr PassageRow kPassages[] = {
    {Passage::kWhole, "whole"},
    {Passage::kChunked, "parts"},
    {Passage::kRewound, "rewound"},
    {Passage::kInterleaved, "interleaved"},
    {Passage::kPaddedBatch, "padded_batch"},
};

}  // namespace

std::string_view PassageName(Passage passage) {
  return std::ranges::find(kPassages, passage, &PassageRow::passage)->name;
}

std::optional<Passage> PassageNamed(std::string_view name) {
  const auto* const row = std::ranges::find(kPassages, name, &PassageRow::name);
  return row == std::end(kPassages) ? std::nullopt : std::optional(row->passage);
}

Error Interrupted() { return {ErrorCode::kInterrupted, "interrupted"}; }
bool IsInterrupted(const Error& error) { return error.code == ErrorCode::kInterrupted; }

Result<std::string> Subject::RenderChat(std::string_view) const {
  return UnsupportedError("{}: has no chat template", Name());
}
Result<std::vector<int32_t>> Subject::Tokenize(const Rendered&) const {
  return UnsupportedError("{}: has no tokenizer", Name());
}
Result<double> Subject::MeasureRounding(const PromptTrace&, double, const Progress&) {
  return UnsupportedError("{}: cannot measure what its rounding does", Name());
}

}  // namespace lockstep

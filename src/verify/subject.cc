#include "verify/subject.h"

namespace lockstep {

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

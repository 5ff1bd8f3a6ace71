#include "verify/subject.h"

namespace lockstep {
namespace {
constexpr std::string_view kInterrupted = "interrupted";
}

Error Interrupted() { return {ErrorCode::kUsage, std::string(kInterrupted)}; }
bool IsInterrupted(const Error& error) { return error.message == kInterrupted; }

Result<std::string> Subject::RenderChat(std::string_view) const {
  return UnsupportedError("{}: has no chat template", Name());
}
Result<std::vector<int32_t>> Subject::Tokenize(const Rendered&) const {
  return UnsupportedError("{}: has no tokenizer", Name());
}

}  // namespace lockstep

#include "subjects/open_subject.h"

#include "subjects/reference_subject.h"
#include "subjects/trace_subject.h"

namespace lockstep {

Result<std::unique_ptr<Subject>> OpenSubject(const std::filesystem::path& path, ThreadPool& pool) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored) && IsTrace(path)) {
    LS_TRY(auto subject, TraceSubject::Open(path));
    return std::unique_ptr<Subject>(std::move(subject));
  }
  LS_TRY(auto subject, ReferenceSubject::Open(path, pool));
  return std::unique_ptr<Subject>(std::move(subject));
}

}  // namespace lockstep

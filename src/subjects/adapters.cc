#include "subjects/adapters.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#include "subjects/command_subject.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string FromEnvironment(const char* name, std::string_view otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : std::string(otherwise);
}

Result<fs::path> FindAdapter(const char* name) {
  std::error_code ignored;
  const fs::path beside = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const fs::path& folder :
       {fs::path(FromEnvironment("LOCKSTEP_ADAPTERS", "")), beside / "../share/lockstep/subjects",
        fs::path(LOCKSTEP_SOURCE_ADAPTERS)})
    if (!folder.empty() && fs::is_regular_file(folder / name, ignored)) return folder / name;
  return UsageError(
      "{} is not found; set LOCKSTEP_ADAPTERS to the folder tools/subjects of Lockstep's sources",
      name);
}

}  // namespace

Result<std::unique_ptr<Subject>> OpenGenAiSubject(std::string_view folder,
                                                  std::chrono::seconds timeout) {
  const fs::path path(folder);
  std::error_code ignored;
  if (!fs::is_regular_file(path / "genai_config.json", ignored))
    return InputError("{}: expected a folder with genai_config.json in it", path.string());
  LS_TRY(const fs::path adapter, FindAdapter("genai_subject.py"));
  LS_TRY(auto subject,
         CommandSubject::Open(
             {.command = fmt::format("exec {} {} {}",
                                     ShellQuoted(FromEnvironment("LOCKSTEP_PYTHON", "python3")),
                                     ShellQuoted(adapter.string()), ShellQuoted(path.string())),
              .name = fmt::format("{} (onnxruntime-genai)", path.string()),
              .timeout = timeout}));
  return std::unique_ptr<Subject>(std::move(subject));
}

}  // namespace lockstep

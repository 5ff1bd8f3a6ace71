#include "formats/gguf_split.h"

#include <string>
#include <utility>

#include "formats/describe.h"
#include "formats/gguf.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The keys that llama-gguf-split writes into every part.
constexpr std::string_view kSplitNo = "split.no";        // from 0
constexpr std::string_view kSplitCount = "split.count";  // parts; 0 or 1: not split
constexpr std::string_view kSplitTensors = "split.tensors.count";

constexpr int64_t kMaxParts = 99999;  // five digits in the name

std::optional<int64_t> Integer(const GgufMetadata& metadata, std::string_view key) {
  const GgufValue* value = metadata.Find(key);
  return value == nullptr ? std::nullopt : value->AsInt();
}

std::string Suffix(int64_t part, int64_t parts) {
  return fmt::format("-{:05}-of-{:05}.gguf", part + 1, parts);
}

void Append(Checkpoint& checkpoint, GgufFile&& parsed, std::shared_ptr<const MappedFile> file) {
  for (TensorInfo& tensor : parsed.tensors) {
    tensor.file = checkpoint.files.size();
    checkpoint.tensors.push_back(std::move(tensor));
  }
  checkpoint.files.push_back(std::move(file));
}

Status ReadParts(const fs::path& path, const std::string& stem, int64_t parts,
                 Checkpoint& checkpoint) {
  for (int64_t part = 0; part < parts; ++part) {
    const fs::path part_path = path.parent_path() / (stem + Suffix(part, parts));
    std::error_code ignored;
    if (!fs::exists(part_path, ignored))
      return InputError("{}: is one of {} parts, but {} is missing (download incomplete?)",
                        path.string(), parts, Quoted(part_path.filename().string()));
    LS_TRY(auto file, MappedFile::Open(part_path));
    LS_TRY(GgufFile parsed, ParseGguf(file->bytes(), part_path.string()));
    const auto no = Integer(parsed.metadata, kSplitNo);
    const auto count = Integer(parsed.metadata, kSplitCount);
    if (no != part || count != parts)
      return InputError("{}: says it is part {} of {}, expected part {} of {}", part_path.string(),
                        no ? fmt::format("{}", *no + 1) : "?",
                        count ? fmt::format("{}", *count) : "?", part + 1, parts);
    if (part == 0) checkpoint.gguf = parsed.metadata;
    Append(checkpoint, std::move(parsed), std::move(file));
  }
  LS_RETURN_IF_ERROR(SortByName(checkpoint.tensors, path.string()));
  const auto tensors = Integer(checkpoint.gguf, kSplitTensors);
  if (tensors && *tensors != static_cast<int64_t>(checkpoint.tensors.size()))
    return InputError("{}: {} says {} tensors, but the {} parts hold {}", path.string(),
                      kSplitTensors, *tensors, parts, checkpoint.tensors.size());
  return {};
}

}  // namespace

Result<Checkpoint> OpenGguf(const fs::path& path, std::shared_ptr<const MappedFile> file) {
  Checkpoint checkpoint;
  checkpoint.kind = Checkpoint::Kind::kGguf;
  checkpoint.path = path;
  const std::string place = path.string();
  LS_TRY(GgufFile parsed, ParseGguf(file->bytes(), place));
  const int64_t parts = Integer(parsed.metadata, kSplitCount).value_or(1);
  if (parts <= 1) {
    checkpoint.gguf = std::move(parsed.metadata);
    Append(checkpoint, std::move(parsed), std::move(file));
    return checkpoint;
  }
  const int64_t part = Integer(parsed.metadata, kSplitNo).value_or(-1);
  if (parts > kMaxParts || part < 0 || part >= parts)
    return InputError("{}: says it is part {} of {}, expected a part from 1 to at most {}", place,
                      part + 1, parts, kMaxParts);
  std::string stem = path.filename().string();
  const std::string suffix = Suffix(part, parts);
  if (!stem.ends_with(suffix))
    return InputError(
        "{}: is part {} of {}, so its name should end in {} for the others to be found", place,
        part + 1, parts, Quoted(suffix));
  stem.resize(stem.size() - suffix.size());
  LS_RETURN_IF_ERROR(ReadParts(path, stem, parts, checkpoint));
  return checkpoint;
}

}  // namespace lockstep

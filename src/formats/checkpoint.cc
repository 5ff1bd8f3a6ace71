#include "formats/checkpoint.h"

#include <algorithm>
#include <system_error>

#include "formats/describe.h"
#include "formats/gguf_split.h"
#include "formats/hf_folder.h"

namespace lockstep {

namespace fs = std::filesystem;

const TensorInfo* Checkpoint::Find(std::string_view name) const {
  const auto it = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const TensorInfo& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return it != tensors.end() && it->name == name ? &*it : nullptr;
}

Result<Checkpoint> OpenCheckpoint(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    return InputError(
        "{}: no such file or folder, expected a Hugging Face folder or a .gguf file on this "
        "machine",
        path.string());
  if (fs::is_directory(status)) return OpenHfFolder(path);

  // By content: an extension can lie, and a download can be something else.
  LS_TRY(auto file, MappedFile::Open(path));
  const std::span<const std::byte> bytes = file->bytes();
  if (LooksLikeGguf(bytes)) return OpenGguf(path, std::move(file));
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (path.filename() == "config.json" || path.filename() == "model.safetensors.index.json")
    return OpenHfFolder(folder);
  if (LooksLikeSafetensors(bytes)) {
    if (!fs::exists(folder / "config.json", error))
      return InputError("{}: a safetensors file holds weights only, expected config.json beside it",
                        path.string());
    // One shard is not a model: its folder is what was meant.
    if (fs::exists(folder / "model.safetensors.index.json", error) &&
        path.filename() != "model.safetensors")
      return OpenHfFolder(folder);
    return OpenHfFolder(folder, path);
  }
  return InputError(
      "{}: expected a Hugging Face folder or a GGUF file, found {}; name the "
      "folder that holds config.json, or a .gguf file",
      path.string(), DescribeContent(bytes));
}

}  // namespace lockstep

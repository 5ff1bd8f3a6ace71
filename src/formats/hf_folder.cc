#include "formats/hf_folder.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "formats/describe.h"
#include "formats/safetensors.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// A JSON file of the folder, which must be an object.
Result<Json> ReadJsonObject(const fs::path& path) {
  LS_TRY(const std::string text, ReadTextFile(path));
  const auto bytes = std::as_bytes(std::span(text));
  // A pointer, a web page or an empty file is named as such rather than as bad JSON.
  if (text.find_first_not_of(" \t\r\n") == std::string::npos ||
      text[text.find_first_not_of(" \t\r\n")] != '{')
    return InputError("{}: expected a JSON object, found {}", path.string(),
                      DescribeContent(bytes));
  return ParseJson(text, path.string());
}

// Regular files of the folder whose name ends so, sorted.
std::vector<std::string> FilesEnding(const fs::path& folder, std::string_view suffix) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    if (name.ends_with(suffix)) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string Listed(std::span<const std::string> names) {
  constexpr size_t kShown = 4;
  std::string out = fmt::format("{}", fmt::join(names.first(std::min(names.size(), kShown)), ", "));
  if (names.size() > kShown) out += fmt::format(" and {} more", names.size() - kShown);
  return out;
}

// What to say of a folder without config.json or without weights.
std::string Advice(const fs::path& folder) {
  if (const auto ggufs = FilesEnding(folder, ".gguf"); !ggufs.empty())
    return fmt::format("; it holds {}: name that file instead", Listed(ggufs));
  for (const std::string_view suffix : {".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack"}) {
    auto names = FilesEnding(folder, suffix);
    std::erase(names, "training_args.bin");
    if (!names.empty())
      return fmt::format(
          "; it holds {}: convert it to safetensors (load it with transformers and call "
          "save_pretrained)",
          Listed(names));
  }
  if (Exists(folder / "adapter_config.json"))
    return "; it holds a LoRA adapter: merge it into its base model first";
  return "; download the whole folder of the model, or name a .gguf file";
}

void Append(Checkpoint& checkpoint, SafetensorsFile&& file) {
  for (TensorInfo& tensor : file.tensors) {
    tensor.file = checkpoint.files.size();
    checkpoint.tensors.push_back(std::move(tensor));
  }
  checkpoint.files.push_back(std::move(file.file));
}

// weight_map of the index: tensor name -> file name in the same folder.
Result<std::map<std::string, std::string>> ReadWeightMap(const fs::path& index_path) {
  const std::string place = index_path.string();
  LS_TRY(const Json index, ReadJsonObject(index_path));
  const auto found = index.find("weight_map");
  if (found == index.end() || !found->is_object() || found->empty())
    return InputError("{}: expected \"weight_map\", an object from tensor to file, found {}", place,
                      found == index.end() ? "none" : "something else");
  std::map<std::string, std::string> weight_map;
  for (const auto& [name, file] : found->items()) {
    if (!file.is_string())
      return InputError("{}: weight_map: tensor {} has no file name but {}", place, Quoted(name),
                        file.type_name());
    const auto& shard = file.get_ref<const std::string&>();
    // A shard lies beside its index: a path out of the folder is not a model's business.
    if (shard.empty() || shard == "." || shard == ".." ||
        shard.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos)
      return InputError(
          "{}: weight_map: tensor {} lies in {}, expected the name of a file in the "
          "same folder",
          place, Quoted(name), Quoted(shard));
    weight_map.emplace(name, shard);
  }
  return weight_map;
}

Status ReadShards(const fs::path& index_path, Checkpoint& checkpoint) {
  LS_TRY(const auto weight_map, ReadWeightMap(index_path));
  std::set<std::string> shards;
  for (const auto& [name, shard] : weight_map) shards.insert(shard);
  std::map<std::string, size_t> file_of_shard;
  for (const std::string& shard : shards) {
    const fs::path path = index_path.parent_path() / shard;
    if (!Exists(path))
      return InputError("{}: names the shard {}, which is not in the folder (download incomplete?)",
                        index_path.string(), Quoted(shard));
    LS_TRY(SafetensorsFile file, OpenSafetensors(path));
    file_of_shard.emplace(shard, checkpoint.files.size());
    Append(checkpoint, std::move(file));
  }
  LS_RETURN_IF_ERROR(SortByName(checkpoint.tensors, index_path.string()));
  for (const auto& [name, shard] : weight_map) {
    const TensorInfo* tensor = checkpoint.Find(name);
    if (tensor == nullptr || tensor->file != file_of_shard.at(shard))
      return InputError("{}: says that tensor {} lies in {}, where it is not", index_path.string(),
                        Quoted(name), Quoted(shard));
  }
  return {};
}

Status ReadWeights(const fs::path& folder, const std::optional<fs::path>& weights,
                   Checkpoint& checkpoint) {
  const fs::path single = folder / "model.safetensors";
  const fs::path index = folder / "model.safetensors.index.json";
  fs::path file;
  if (weights) {
    file = *weights;
  } else if (Exists(single)) {
    file = single;
  } else if (Exists(index)) {
    return ReadShards(index, checkpoint);
  } else {
    const auto names = FilesEnding(folder, ".safetensors");
    if (names.empty())
      return InputError(
          "{}: expected model.safetensors or model.safetensors.index.json, found "
          "neither{}",
          folder.string(), Advice(folder));
    if (names.size() > 1)
      return InputError(
          "{}: expected model.safetensors or model.safetensors.index.json, found {} files ({}) and "
          "no index that joins them",
          folder.string(), names.size(), Listed(names));
    file = folder / names.front();
  }
  LS_TRY(SafetensorsFile opened, OpenSafetensors(file));
  Append(checkpoint, std::move(opened));
  return {};
}

}  // namespace

Result<Checkpoint> OpenHfFolder(const fs::path& folder, const std::optional<fs::path>& weights) {
  Checkpoint checkpoint;
  checkpoint.kind = Checkpoint::Kind::kHuggingFace;
  checkpoint.path = folder;
  const fs::path config = folder / "config.json";
  if (!Exists(config))
    return InputError("{}: expected a Hugging Face folder with config.json, found none{}",
                      folder.string(), Advice(folder));
  LS_TRY(checkpoint.config, ReadJsonObject(config));
  const fs::path generation_config = folder / "generation_config.json";
  if (Exists(generation_config)) {
    LS_TRY(checkpoint.generation_config, ReadJsonObject(generation_config));
  }
  LS_RETURN_IF_ERROR(ReadWeights(folder, weights, checkpoint));
  return checkpoint;
}

}  // namespace lockstep

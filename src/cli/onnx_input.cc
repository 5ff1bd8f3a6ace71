#include "cli/onnx_input.h"

#include <fmt/ranges.h>

#include "arch/hf_facts.h"
#include "arch/spec_facts.h"
#include "audit/onnx_checkpoint.h"
#include "base/mapped_file.h"
#include "base/quoted.h"
#include "export/export.h"
#include "model/read_spec.h"
#include "spec/fields.h"
#include "spec/validate.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct Facts {
  ModelSpec spec;
  Json config, generation_config;
};

bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

Result<Json> ReadObject(const fs::path& path) {
  LS_TRY(const std::string text, ReadTextFile(path));
  LS_TRY(Json json, ParseJson(text, path.string()));
  if (!json.is_object())
    return InputError("{}: expected an object, found {}", path.string(), json.type_name());
  return json;
}

// `place`: the folder that HF's reader names in messages.
Result<ModelSpec> SpecOf(const Json& config, const fs::path& place) {
  Checkpoint checkpoint;
  checkpoint.path = place;
  checkpoint.config = config;
  return ReadSpec(checkpoint);
}

Result<Facts> FromConfig(const fs::path& given) {
  std::error_code ignored;
  const fs::path file = fs::is_directory(given, ignored) ? given / "config.json" : given;
  Facts facts;
  LS_TRY(facts.config, ReadObject(file));
  LS_TRY(facts.spec, SpecOf(facts.config, file.parent_path()));
  const fs::path generation = file.parent_path() / "generation_config.json";
  if (Exists(generation)) {
    LS_TRY(facts.generation_config, ReadObject(generation));
  }
  return facts;
}

Json GenerationConfig(const TokenIds& tokens) {
  Json json = {{"_from_model_config", true}};
  if (tokens.bos) json["bos_token_id"] = *tokens.bos;
  if (tokens.eos.size() == 1) json["eos_token_id"] = tokens.eos[0];
  if (tokens.eos.size() > 1) json["eos_token_id"] = tokens.eos;
  if (tokens.pad) json["pad_token_id"] = *tokens.pad;
  return json;
}

// Of a folder that was made of a GGUF file, or that keeps no config.json: the first model type of
// transformers that can state the facts.
Result<Facts> Stated(const ModelSpec& recorded, const std::string& place) {
  std::vector<const HfArchitecture*> rows = HfArchitecturesOf(recorded.architecture);
  if (const HfArchitecture* same = FindHfArchitecture(recorded.architecture))
    rows.insert(rows.begin(), same);
  std::optional<Error> why;
  for (const HfArchitecture* row : rows) {
    Result<Json> config = StateInHf(recorded, *row, 0, place);
    if (!config) {
      if (!why) why = std::move(config).error();
      continue;
    }
    LS_TRY(ModelSpec spec, SpecOf(*config, place));
    Json generation = GenerationConfig(spec.tokens);
    return Facts{std::move(spec), *std::move(config), std::move(generation)};
  }
  if (why) return tl::unexpected(*std::move(why));
  return UnsupportedError("{}: no model type of transformers is known for {}", place,
                          Quoted(recorded.architecture));
}

Result<Facts> FromRecord(const fs::path& path) {
  const std::string place = path.string();
  LS_TRY(const Json manifest, ReadObject(path));
  const auto spec = manifest.find("spec");
  if (spec == manifest.end())
    return InputError("{}: the key \"spec\" is missing; name the model's config.json (--config)",
                      place);
  LS_TRY(const ModelSpec recorded, FromJson(*spec, place + ": \"spec\""));
  if (Status valid = Validate(recorded); !valid)
    return tl::unexpected(std::move(valid).error().In(place));
  const auto source = manifest.find("source");
  const bool kept = source != manifest.end() && source->is_object() && source->contains("config") &&
                    (*source)["config"].is_object();
  if (!kept) return Stated(recorded, place);
  Facts facts{.config = (*source)["config"]};
  LS_TRY(facts.spec, SpecOf(facts.config, path.parent_path()));
  if (const auto differences = FactsThatDiffer(recorded, facts.spec); !differences.empty())
    return InputError("{}: its \"spec\" is not what its \"config\" says: {}", place,
                      fmt::join(differences, "; "));
  if (source->contains("generation_config"))
    facts.generation_config = (*source)["generation_config"];
  return facts;
}

// The dtype that the configuration states; null: none that "keep" could take.
const TensorType* StatedType(const Json& config) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (!config.contains(key)) continue;
    if (config[key] == "float16") return FindTensorType("F16");
    if (config[key] == "bfloat16") return FindTensorType("BF16");
  }
  return nullptr;
}

}  // namespace

Result<OnnxInput> OpenOnnxInput(const fs::path& folder, const fs::path& config) {
  LS_TRY(OnnxModel opened, OnnxModel::Open(folder));
  const auto onnx = std::make_shared<const OnnxModel>(std::move(opened));
  const fs::path record = onnx->folder() / kManifestName;
  if (config.empty() && !Exists(record))
    return UsageError(
        "{}: a graph says no configuration, and there is no {} of an export by lockstep in the "
        "folder: name the model's config.json, or the folder that holds it (--config)",
        folder.string(), kManifestName);
  LS_TRY(Facts facts, config.empty() ? FromRecord(record) : FromConfig(config));
  Checkpoint checkpoint;
  checkpoint.path = onnx->folder();
  checkpoint.config = std::move(facts.config);
  checkpoint.generation_config = std::move(facts.generation_config);
  LS_TRY(Model model, ModelOfOnnx(onnx, std::move(facts.spec), std::move(checkpoint)));
  const TensorType* before = StatedType(model.checkpoint.config);
  return OnnxInput{std::move(model), onnx, before};
}

}  // namespace lockstep

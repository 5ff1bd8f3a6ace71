#include <fmt/ranges.h>

#include <set>

#include "base/nearest.h"
#include "base/quoted.h"
#include "model/model.h"
#include "model/read_spec.h"
#include "spec/validate.h"

namespace lockstep {
namespace {

std::string Unknown(std::string_view what, std::string_view name,
                    const std::vector<std::string>& known) {
  const std::string nearest = NearestName(name, known);
  return fmt::format("{} {} is not known{}; known are: {}", what, Quoted(name),
                     nearest.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", nearest),
                     fmt::join(known, ", "));
}

constexpr size_t kNamesInNote = 6;

struct Understood {
  ModelSpec spec;
  std::span<const TensorRule> tensors;
  std::vector<std::string> unread_keys;
  std::set<std::string, std::less<>> no_weights;  // tensors known to be no weight
};

std::set<std::string, std::less<>> BufferNames(const HfArchitecture& architecture,
                                               size_t num_layers) {
  constexpr std::string_view kLayer = "{layer}";
  std::set<std::string, std::less<>> names;
  for (const std::string_view pattern : architecture.buffers) {
    const size_t at = pattern.find(kLayer);
    LS_CHECK(at != std::string_view::npos, "buffer {}", pattern);
    for (size_t layer = 0; layer < num_layers; ++layer)
      names.insert(
          fmt::format("{}{}{}", pattern.substr(0, at), layer, pattern.substr(at + kLayer.size())));
  }
  return names;
}

Result<Understood> Understand(const Checkpoint& checkpoint) {
  const std::string place = checkpoint.path.string();
  if (checkpoint.kind == Checkpoint::Kind::kGguf) {
    const GgufValue* value = checkpoint.gguf.Find("general.architecture");
    const auto name = value != nullptr ? value->AsString() : std::nullopt;
    if (!name)
      return InputError(
          "{}: the key general.architecture is missing or no text; a GGUF model names "
          "its architecture there",
          place);
    const GgufArchitecture* architecture = FindGgufArchitecture(*name);
    if (architecture == nullptr)
      return UnsupportedError(
          "{}: {}", place,
          Unknown("the GGUF architecture", std::string(*name), KnownGgufArchitectures()));
    GgufConfig config(checkpoint, std::string(*name));
    LS_TRY(ModelSpec spec, architecture->build(config));
    return Understood{std::move(spec), architecture->tensors, config.UnreadKeys(),
                      config.tensors_read()};
  }
  const std::string file = (checkpoint.path / "config.json").string();
  if (!checkpoint.config.is_object())
    return InputError("{}: expected an object, found {}", file, checkpoint.config.type_name());
  const auto model_type = checkpoint.config.find("model_type");
  if (model_type == checkpoint.config.end() || !model_type->is_string())
    return InputError(
        "{}: the key \"model_type\" is missing or no text; it says which architecture "
        "the weights belong to (\"llama\", \"gpt2\", ...)",
        file);
  const std::string name = model_type->get<std::string>();
  const HfArchitecture* architecture = FindHfArchitecture(name);
  if (architecture == nullptr)
    return UnsupportedError("{}: {}", file,
                            Unknown("the model_type", name, KnownHfArchitectures()));
  HfConfig config(checkpoint.config, file);
  LS_RETURN_IF_ERROR(RefuseQuantized(config));
  LS_TRY(ModelSpec spec, architecture->build(config));
  std::set<std::string, std::less<>> buffers = BufferNames(*architecture, spec.layers.size());
  return Understood{std::move(spec), architecture->tensors, config.UnreadKeys(),
                    std::move(buffers)};
}

}  // namespace

Result<ModelSpec> ReadSpec(const Checkpoint& checkpoint) {
  LS_TRY(Understood understood, Understand(checkpoint));
  if (Status valid = Validate(understood.spec); !valid)
    return tl::unexpected(std::move(valid).error().In(checkpoint.path.string()));
  return std::move(understood.spec);
}

Result<Model> LoadModel(const std::filesystem::path& path) {
  LS_TRY(Checkpoint checkpoint, OpenCheckpoint(path));
  return LoadModel(std::move(checkpoint));
}

Result<Model> LoadModel(Checkpoint checkpoint) {
  LS_TRY(Understood understood, Understand(checkpoint));
  if (Status valid = Validate(understood.spec); !valid)
    return tl::unexpected(std::move(valid).error().In(checkpoint.path.string()));
  LS_TRY(Binding binding, BindWeights(understood.spec, understood.tensors, checkpoint));
  std::erase_if(binding.unused_tensors,
                [&](const std::string& name) { return understood.no_weights.contains(name); });
  Model model{std::move(checkpoint), std::move(understood.spec), std::move(binding.weights), {}};
  if (!understood.unread_keys.empty())
    model.notes.push_back(
        fmt::format("nothing reads these configuration keys, and they could change numbers: {}",
                    QuotedList(understood.unread_keys, kNamesInNote)));
  if (!binding.unused_tensors.empty())
    model.notes.push_back(fmt::format("{} tensors are not used by this architecture: {}",
                                      binding.unused_tensors.size(),
                                      QuotedList(binding.unused_tensors, kNamesInNote)));
  return model;
}

}  // namespace lockstep

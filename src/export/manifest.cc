#include "export/export.h"
#include "export/precision.h"
#include "spec/fields.h"

namespace lockstep {

std::span<const CodeMethodInfo> CodeMethods() {
  static constexpr CodeMethodInfo kMethods[] = {
      {CodeMethod::kNearest, "rtn", "plain rounding, as the runtime's builder does it"},
      {CodeMethod::kSquaredError, "mse", "scales of the least squared error"},
      {CodeMethod::kActivations, "awq",
       "the same, columns counting by the squares of what they multiply"},
      {CodeMethod::kFeedback, "gptq", "the same, each column making good the errors before it"},
  };
  return kMethods;
}

Json ExportManifest(const Model& model, std::string_view target, const ExportOptions& options,
                    const ExportReport& report) {
  constexpr int kFormatVersion = 1;
  Json json = Json::object();
  json["format"] = "lockstep export";
  json["format_version"] = kFormatVersion;
  json["target"] = target;
  json["precision"] = options.precision;
  json["execution_provider"] = options.execution_provider;
  if (const ExportPrecision* precision = FindExportPrecision(options.precision);
      precision != nullptr && precision->bits > 0)
    json["codes"] = {
        {"bits", precision->bits},
        {"block", options.codes.block},
        {"zero_points", options.codes.asymmetric},
        {"method", CodeMethods()[static_cast<size_t>(options.codes.method)].name},
        {"calibration_tokens", options.calibration == nullptr ? 0 : options.calibration->tokens()}};
  Json& source = json["source"] = Json::object();
  source["name"] = model.checkpoint.path.filename().string();
  Json& files = source["files"] = Json::array();
  for (const auto& file : model.checkpoint.files)
    files.push_back({{"name", file->path().filename().string()}, {"bytes", file->bytes().size()}});
  // So that the way back needs nothing else (docs/export_gguf.md). A Hugging Face folder holds
  // both.
  if (target != "safetensors" && model.checkpoint.config.is_object()) {
    source["config"] = model.checkpoint.config;
    if (model.checkpoint.generation_config.is_object())
      source["generation_config"] = model.checkpoint.generation_config;
  }
  json["weight_bytes"] = report.bytes;
  json["notes"] = report.notes;
  json["spec"] = ToJson(model.spec);
  return json;
}

}  // namespace lockstep

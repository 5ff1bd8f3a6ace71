#include "cli/known.h"

#include <fmt/format.h>

#include "arch/architecture.h"
#include "faults/catalog.h"
#include "quant/tensor_type.h"

namespace lockstep {
namespace {

std::string BulletList(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += fmt::format("- `{}`\n", name);
  return out;
}

}  // namespace

std::string KnownText() {
  const std::vector<std::string> folders = KnownHfArchitectures(), files = KnownGgufArchitectures();
  std::string out =
      "# What Lockstep knows\n\n"
      "`lockstep inspect --known > docs/known.md` writes this page from the program's own tables; "
      "a test fails when it is old.\n\n";
  out += fmt::format(
      "## Hugging Face folders\n\nThe {} values of `model_type` in config.json:\n\n{}\n",
      folders.size(), BulletList(folders));
  out += fmt::format("## GGUF files\n\nThe {} values of `general.architecture`:\n\n{}\n",
                     files.size(), BulletList(files));
  out +=
      "## Tensor types\n\n"
      "What each means is read exactly as its format defines it; whole numbers are never taken for "
      "weights. Bits are those of an element, scales included. A type with a number is one of GGUF "
      "files.\n\n"
      "| type | number | elements of a block | bytes of a block | bits | what |\n"
      "|---|---|---|---|---|---|\n";
  for (const TensorType& type : TensorTypes())
    out += fmt::format("| {} | {} | {} | {} | {:g} | {} |\n", type.name,
                       type.ggml_type ? std::to_string(*type.ggml_type) : "", type.block_elements,
                       type.block_bytes, type.bits_per_weight(), type.description);
  return out;
}

Json KnownJson() {
  Json types = Json::array();
  for (const TensorType& type : TensorTypes()) {
    Json row = {{"type", type.name},
                {"block_elements", type.block_elements},
                {"block_bytes", type.block_bytes},
                {"bits_per_weight", type.bits_per_weight()},
                {"description", type.description}};
    if (type.ggml_type) row["ggml_type"] = *type.ggml_type;
    types.push_back(std::move(row));
  }
  return {{"model_types", KnownHfArchitectures()},
          {"gguf_architectures", KnownGgufArchitectures()},
          {"tensor_types", std::move(types)}};
}

Json FaultsJson() {
  Json faults = Json::array(), controls = Json::array();
  for (const Fault& fault : KnownFaults())
    faults.push_back({{"id", fault.id},
                      {"number", fault.number},
                      {"name", fault.name},
                      {"what", fault.what},
                      {"seen", fault.seen},
                      {"how", fault.how},
                      {"precision", fault.precision}});
  for (const NegativeControl& control : NegativeControls())
    controls.push_back({{"id", control.id}, {"name", control.name}, {"what", control.what}});
  return {{"faults", std::move(faults)}, {"negative_controls", std::move(controls)}};
}

}  // namespace lockstep

// Any bytes as config.json: an error or a spec, never a crash, a hang or a wild allocation. A spec
// that its own checks accept must also say which weights it needs.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "arch/architecture.h"
#include "arch/hf_config.h"
#include "base/json.h"
#include "spec/validate.h"
#include "spec/weights.h"

using lockstep::FindHfArchitecture;
using lockstep::HfConfig;
using lockstep::Json;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const lockstep::Result<Json> json = lockstep::ParseJson(text, "config.json");
  if (!json || !json->is_object()) return 0;
  HfConfig config(*json, "config.json");
  const auto model_type = config.Require<std::string>("model_type");
  if (!model_type) return 0;
  const lockstep::HfArchitecture* architecture = FindHfArchitecture(*model_type);
  if (architecture == nullptr) return 0;
  const auto spec = architecture->build(config);
  config.UnreadKeys();
  if (!spec || !lockstep::Validate(*spec)) return 0;
  lockstep::CountParameters(*spec);
  lockstep::RequiredWeights(*spec);
  return 0;
}

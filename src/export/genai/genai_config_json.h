// genai_config.json of an exported decoder: keys and rules of onnxruntime-genai 0.18, which refuses
// a file with any key that it does not know.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "export/genai/builder.h"
#include "model/model.h"

namespace lockstep::genai {

// `b` after BuildDecoder. What the checkpoint's generation settings say and the runtime has no key
// for goes into `notes`.
Json GenAiConfigJson(const Model& model, const GraphBuilder& b, std::vector<std::string>& notes);

}  // namespace lockstep::genai

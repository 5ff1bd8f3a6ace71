// RecordedLogits: what llama.cpp computed, from the file that its
// `llama-perplexity -f TEXT -c CTX --kl-divergence-base FILE` writes, so that its distance from our
// reference is measured by the same code as our engine's.
//
//   0   "_logits_"
//   8   u32 ids of a window (its -c) · i32 vocabulary · i32 windows
//   20  i32 ids [windows][ids of a window], as tokenized
//       rows [windows][ids - 1 - ids / 2]: f32 scale · f32 least · u16 codes [vocabulary, made
//       even]
//
// Row r of a window follows its id ids / 2 + r; log p(v) = least + scale * code[v]. What llama.cpp
// found less likely than e^-16 of the likeliest is cut off there.
#pragma once

#include <filesystem>
#include <memory>

#include "base/error.h"
#include "measure/logits_source.h"

namespace lockstep {

bool IsRecordedLogits(const std::filesystem::path& path);

// Its n-th sequence must be its n-th window, of the ids that it recorded (but for the first, where
// llama.cpp puts the begin-of-text id): anything else is an error. Rows are of the second half.
Result<std::unique_ptr<LogitsSource>> OpenRecordedLogits(const std::filesystem::path& path);

}  // namespace lockstep

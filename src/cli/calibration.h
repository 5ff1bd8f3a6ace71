// Calibrate: what a model's matrices multiply on a built-in text in several languages, as the
// reference computes it; for exporters that choose codes by it.
#pragma once

#include "base/error.h"
#include "base/thread_pool.h"
#include "export/importance.h"
#include "export/progress.h"
#include "model/model.h"

namespace lockstep {

// A model without a tokenizer is an error. The model must outlive the result.
Result<ColumnImportance> Calibrate(const Model& model, ThreadPool& pool,
                                   const ExportProgress& progress);

}  // namespace lockstep

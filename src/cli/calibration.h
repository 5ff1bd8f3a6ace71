// Calibrator: what a model's matrices multiply on a text, as the reference computes it; for
// exporters that choose codes by it (export/calibration.h).
//
// The squares of all columns come from one reading of the model as it is. For error feedback the
// layers are then read one after the other, as codes are asked for: what a layer multiplies is what
// the layers before it give with the codes that were chosen there. In memory are the text's
// residual stream and one layer.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "export/calibration.h"
#include "export/export.h"
#include "model/model.h"
#include "reference/interpreter.h"

namespace lockstep {

class Calibrator : public Calibration {
 public:
  // `text`: what is read; empty: the built-in one, in several languages. A model without a
  // tokenizer is an error. Model and pool must outlive it.
  static Result<std::unique_ptr<Calibrator>> Read(const Model& model, CodeMethod method,
                                                  std::string_view text, ThreadPool& pool,
                                                  const ExportProgress& progress);

  Result<InputStatistics> Of(const WeightView& view) override;
  void Chosen(const MatrixSource& matrix,
              const std::function<void(int64_t row, float* out)>& values) override;
  int64_t tokens() const override { return tokens_; }
  // Sentences: matrices that the text hardly reached, or that are too large.
  std::vector<std::string> Notes() const;

  const std::vector<std::vector<int32_t>>& ids() const { return ids_; }

  // Of one input, which several matrices may share.
  struct Moments {
    int64_t rows = 0;
    std::vector<float> squares, products;  // [cols], [cols, cols] (upper triangle)
    std::shared_ptr<const ErrorFeedback> feedback;
  };

 private:
  Calibrator(const Model& model, CodeMethod method, ThreadPool& pool);
  Status ReadWhole(const ExportProgress& progress);
  void Embed();
  void MoveTo(int layer);
  void EndLayer();
  InputStatistics WithFeedback(const WeightId& id, const WeightView& view, Moments& own);

  const Model& model_;
  const CodeMethod method_;
  ThreadPool& pool_;
  Weights weights_;  // the model's, of the present layer those that codes stand for
  Interpreter<float> reference_;
  std::vector<std::vector<int32_t>> ids_;
  std::vector<std::vector<float>> streams_;  // in front of layer_
  int layer_ = -1;                           // whose inputs are in moments_
  std::map<MatrixKey, std::shared_ptr<Moments>> whole_, moments_;
  std::map<MatrixKey, std::vector<WeightId>> ids_of_;
  std::map<WeightId, std::vector<float>> chosen_;
  std::set<std::string> large_;
  int64_t tokens_ = 0, experts_ = 0, unseen_experts_ = 0;
};

}  // namespace lockstep

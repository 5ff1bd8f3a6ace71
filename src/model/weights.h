// Weights: every weight that a spec needs, bound to where a checkpoint stores it.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "arch/architecture.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "formats/checkpoint.h"
#include "model/weight_view.h"
#include "spec/weights.h"

namespace lockstep {

class Weights {
 public:
  // The weight must be one of RequiredWeights(spec): anything else is a mistake of ours and stops.
  const WeightView& Get(Role role, int layer = -1, Part part = Part::kWeight,
                        int expert = -1) const;
  const WeightView* Find(const WeightId& id) const;  // nullptr when the spec has no such weight
  const std::map<WeightId, WeightView>& all() const { return views_; }
  void Set(const WeightId& id, WeightView view) { views_[id] = std::move(view); }
  // The files that the views lie in; none when they lie elsewhere.
  std::span<const std::shared_ptr<const MappedFile>> files() const { return files_; }
  // Views may lie in values that were made for them (an edit): kept alive as long as the weights.
  void Keep(std::shared_ptr<const void> values) { kept_.push_back(std::move(values)); }
  void SetFiles(std::vector<std::shared_ptr<const MappedFile>> files) { files_ = std::move(files); }

 private:
  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::map<WeightId, WeightView> views_;
  std::vector<std::shared_ptr<const void>> kept_;
};

struct Binding {
  Weights weights;
  std::vector<std::string> unused_tensors;  // in the checkpoint, and no weight of this spec
};

// Finds each of RequiredWeights(spec) by the rules and checks its shape. Missing tensors and shapes
// that contradict the configuration are errors that name both.
Result<Binding> BindWeights(const ModelSpec& spec, std::span<const TensorRule> rules,
                            const Checkpoint& checkpoint);

}  // namespace lockstep

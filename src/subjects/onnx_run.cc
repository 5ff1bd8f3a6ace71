#include "subjects/onnx_run.h"

#include <algorithm>
#include <cmath>

#include "base/memory.h"
#include "base/quoted.h"

namespace lockstep {
namespace {

using What = OnnxFed::What;

std::string Shape(std::span<const int64_t> dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

}  // namespace

Result<OnnxRun> OnnxRun::Start(std::shared_ptr<const OrtRuntime> runtime, OrtSession& session,
                               const OnnxContract& contract, int64_t capacity) {
  OnnxRun run(std::move(runtime), session, contract, capacity);
  std::vector<std::vector<int64_t>> shapes;
  uint64_t bytes = 0;
  for (const OnnxCache& cache : contract.caches) {
    std::vector<int64_t> shape = cache.shape;
    if (cache.kind == OnnxCache::Kind::kBuffer && shape[cache.axis] == 0)
      shape[cache.axis] = std::max(capacity, cache.least_rows);
    uint64_t size = OrtTypeSize(cache.type);
    for (const int64_t dim : shape)
      if (__builtin_mul_overflow(size, static_cast<uint64_t>(dim), &size))
        return InputError("the cache {} has the shape {}, which no memory holds",
                          Quoted(cache.past), Shape(shape));
    if (__builtin_add_overflow(bytes, size, &bytes) || bytes > AvailableMemory())
      return InputError("the caches up to {} {} need {} bytes, more than the memory that is left",
                        Quoted(cache.past), Shape(shape), bytes);
    shapes.push_back(std::move(shape));
  }
  for (size_t i = 0; i < shapes.size(); ++i) {
    LS_TRY(OrtTensor tensor, OrtTensor::Create(run.runtime_, contract.caches[i].type, shapes[i]));
    run.caches_.push_back(std::move(tensor));
  }
  return run;
}

Result<OrtTensor> OnnxRun::Fill(const OnnxFed& fed, std::span<const int32_t> ids,
                                int64_t past) const {
  const auto count = static_cast<int64_t>(ids.size()), total = past + count;
  std::vector<int64_t> values;
  switch (fed.what) {
    case What::kIds:
      values.assign(ids.begin(), ids.end());
      break;
    case What::kMask:
      values.assign(static_cast<size_t>(total), 1);
      if (fed.fixed_length > 0) {
        if (total > fed.fixed_length)
          return InputError("the graph's {} has {} columns, and {} positions are needed",
                            Quoted(fed.name), fed.fixed_length, total);
        values.resize(static_cast<size_t>(fed.fixed_length), 0);
      }
      break;
    case What::kPositions:
    case What::kCachePosition:
      for (int64_t i = 0; i < count; ++i) values.push_back(past + i);
      break;
    case What::kPastLength:
      values = {past};
      break;
    case What::kTotalLength:
      values = {total};
      break;
    case What::kLogitsToKeep:
      values = {0};
      break;
  }
  std::vector<int64_t> shape(fed.rank, 1);
  if (fed.rank > 0) shape.back() = static_cast<int64_t>(values.size());
  if (fed.rank == 0 && values.size() != 1)
    return InputError("the graph's {} is a scalar, expected one number a position",
                      Quoted(fed.name));
  return OrtTensor::OfInts(runtime_, fed.type, shape, values);
}

Status OnnxRun::Append(std::span<const int32_t> ids, const OrtSession::KeepGoing& keep_going,
                       std::span<const std::string> extra) {
  const auto past = contract_.caches.empty() ? 0 : length();
  held_.insert(held_.end(), ids.begin(), ids.end());
  const std::span<const int32_t> fed_ids = contract_.caches.empty() ? std::span(held_) : ids;
  const auto count = static_cast<int64_t>(fed_ids.size());
  LS_CHECK(length() <= capacity_, "{} of {}", length(), capacity_);
  std::vector<OrtTensor> fed;
  fed.reserve(contract_.fed.size());
  std::vector<OrtSession::Input> inputs;
  for (const OnnxFed& f : contract_.fed) {
    LS_TRY(OrtTensor tensor, Fill(f, fed_ids, past));
    fed.push_back(std::move(tensor));
    inputs.push_back({f.name, &fed.back()});
  }
  std::vector<std::string> outputs = {contract_.logits};
  for (size_t i = 0; i < caches_.size(); ++i) {
    const OnnxCache& cache = contract_.caches[i];
    if (cache.kind == OnnxCache::Kind::kBuffer && past + count > caches_[i].shape()[cache.axis])
      return InputError("the cache {} has room for {} positions, and {} are needed",
                        Quoted(cache.past), caches_[i].shape()[cache.axis], past + count);
    inputs.push_back({cache.past, &caches_[i]});
    outputs.push_back(cache.present);
  }
  const size_t first_extra = outputs.size();
  outputs.insert(outputs.end(), extra.begin(), extra.end());
  bool stopped = false;
  LS_TRY(auto given, session_.Run(inputs, outputs, [&] {
    stopped = stopped || (keep_going && !keep_going());
    return !stopped;
  }));
  if (stopped) return tl::unexpected(Interrupted());
  LS_RETURN_IF_ERROR(TakeLogits(std::move(given[0]), count));
  for (size_t i = 0; i < caches_.size(); ++i)
    LS_RETURN_IF_ERROR(TakeCache(i, std::move(given[i + 1]), past + count));
  extras_.clear();
  for (size_t i = first_extra; i < given.size(); ++i) extras_.push_back(std::move(given[i]));
  return {};
}

Status OnnxRun::TakeLogits(OrtTensor logits, int64_t count) {
  const std::string name = Quoted(contract_.logits);
  const auto& shape = logits.shape();
  if (shape.empty() || shape.back() <= 0 ||
      (contract_.vocab_size && shape.back() != *contract_.vocab_size))
    return InputError("the graph's output {} has the shape {}, expected {} columns", name,
                      Shape(shape), contract_.vocab_size.value_or(1));
  vocab_size_ = shape.back();
  rows_ = logits.elements() / vocab_size_;
  if (rows_ != count && rows_ != 1)
    return InputError("the graph's output {} has the shape {}, expected {} positions or 1", name,
                      Shape(shape), count);
  const std::vector<float> values = logits.Floats(0, logits.elements());
  const auto bad =
      std::find_if_not(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
  if (bad != values.end())
    return InputError("the logit of id {} at position {} is {}, which is no number",
                      (bad - values.begin()) % vocab_size_,
                      length() - rows_ + (bad - values.begin()) / vocab_size_, *bad);
  logits_.clear();
  logits_.push_back(std::move(logits));
  return {};
}

Status OnnxRun::TakeCache(size_t index, OrtTensor present, int64_t total) {
  const OnnxCache& cache = contract_.caches[index];
  std::vector<int64_t> expected = caches_[index].shape();
  if (cache.kind == OnnxCache::Kind::kGrowing) expected[cache.axis] = total;
  if (present.type() != cache.type || present.shape() != expected)
    return InputError("the graph's output {} is {} {}, expected {} {} to replace {}",
                      Quoted(cache.present), OrtTypeName(present.type()), Shape(present.shape()),
                      OrtTypeName(cache.type), Shape(expected), Quoted(cache.past));
  caches_[index] = std::move(present);
  return {};
}

}  // namespace lockstep

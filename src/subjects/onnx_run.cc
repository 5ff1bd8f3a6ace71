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
                               const OnnxContract& contract, int64_t capacity, int64_t batch) {
  LS_CHECK(batch == 1 || (contract.free_batch && !contract.caches.empty()));
  OnnxRun run(std::move(runtime), session, contract, capacity, batch);
  std::vector<std::vector<int64_t>> shapes;
  uint64_t bytes = 0;
  for (const OnnxCache& cache : contract.caches) {
    std::vector<int64_t> shape = cache.shape;
    if (cache.batch_axis) shape[*cache.batch_axis] = batch;
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
  const auto batch = static_cast<int64_t>(masks_.size());
  const auto count = static_cast<int64_t>(ids.size()) / batch, total = past + count;
  std::vector<int64_t> values;
  switch (fed.what) {
    case What::kIds:
      values.assign(ids.begin(), ids.end());
      break;
    case What::kMask:
      if (fed.fixed_length > 0 && total > fed.fixed_length)
        return InputError("the graph's {} has {} columns, and {} positions are needed",
                          Quoted(fed.name), fed.fixed_length, total);
      for (const std::vector<int64_t>& mask : masks_) {
        values.insert(values.end(), mask.begin(), mask.end());
        if (fed.fixed_length > 0)
          values.insert(values.end(), static_cast<size_t>(fed.fixed_length - total), 0);
      }
      break;
    case What::kPositions:
      AddPositions(past, values);
      break;
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
  const bool is_row =
      fed.what == What::kIds || fed.what == What::kMask || fed.what == What::kPositions;
  const int64_t rows = is_row ? batch : 1;
  if (is_row) shape.front() = rows;
  if (fed.rank > 0) shape.back() = static_cast<int64_t>(values.size()) / rows;
  if (fed.rank == 0 && values.size() != 1)
    return InputError("the graph's {} is a scalar, expected one number a position",
                      Quoted(fed.name));
  return OrtTensor::OfInts(runtime_, fed.type, shape, values);
}

Status OnnxRun::Append(std::span<const int32_t> ids, const OrtSession::KeepGoing& keep_going,
                       std::span<const std::string> extra) {
  LS_CHECK(masks_.size() == 1);
  masks_[0].insert(masks_[0].end(), ids.size(), 1);
  length_ += static_cast<int64_t>(ids.size());
  if (!contract_.caches.empty()) return Call(ids, keep_going, extra);
  held_.insert(held_.end(), ids.begin(), ids.end());
  return Call(held_, keep_going, extra);
}

Status OnnxRun::AppendBatch(std::span<const PaddedRow> rows,
                            const OrtSession::KeepGoing& keep_going,
                            std::span<const std::string> extra) {
  LS_CHECK(rows.size() == masks_.size() && !rows.empty());
  const size_t columns = rows[0].ids.size() + rows[0].padding;
  std::vector<int32_t> ids;
  for (size_t b = 0; b < rows.size(); ++b) {
    const auto& [own, padding, left] = rows[b];
    LS_CHECK(own.size() + padding == columns, "{} + {} of {}", own.size(), padding, columns);
    for (const bool pads : {left, !left}) {
      masks_[b].insert(masks_[b].end(), pads ? padding : own.size(), pads ? 0 : 1);
      if (pads)
        ids.insert(ids.end(), padding, 0);
      else
        ids.insert(ids.end(), own.begin(), own.end());
    }
  }
  length_ += static_cast<int64_t>(columns);
  return Call(ids, keep_going, extra);
}

// As transformers counts them: padding takes no position, and is fed any.
void OnnxRun::AddPositions(int64_t past, std::vector<int64_t>& values) const {
  for (const std::vector<int64_t>& mask : masks_) {
    int64_t position = 0;
    for (size_t column = 0; column < mask.size(); ++column) {
      if (static_cast<int64_t>(column) >= past) values.push_back(mask[column] != 0 ? position : 0);
      position += mask[column];
    }
  }
}

Status OnnxRun::CutBack(int64_t length) {
  LS_CHECK(length >= 0 && length <= length_, "{} of {}", length, length_);
  for (size_t i = 0; i < caches_.size(); ++i) {
    const OnnxCache& cache = contract_.caches[i];
    switch (cache.kind) {
      case OnnxCache::Kind::kGrowing: {
        LS_TRY(caches_[i], Shortened(caches_[i], cache.axis, length));
        break;
      }
      case OnnxCache::Kind::kBuffer:  // rows that are there and are not to be read
        break;
      case OnnxCache::Kind::kWindow:
        if (length_ > cache.shape[cache.axis])
          return UnsupportedError(
              "the cache {} holds the last {} positions: what it has let go of cannot come back",
              Quoted(cache.past), cache.shape[cache.axis]);
        break;
      case OnnxCache::Kind::kState:
        return UnsupportedError("the state {} cannot be cut back", Quoted(cache.past));
    }
  }
  length_ = length;
  for (auto& mask : masks_) mask.resize(static_cast<size_t>(length));
  if (contract_.caches.empty()) held_.resize(static_cast<size_t>(length));
  return {};
}

Result<OrtTensor> OnnxRun::Shortened(const OrtTensor& cache, size_t axis, int64_t length) const {
  std::vector<int64_t> shape = cache.shape();
  const int64_t before = shape[axis];
  shape[axis] = length;
  LS_TRY(OrtTensor out, OrtTensor::Create(runtime_, cache.type(), shape));
  size_t outer = 1, inner = OrtTypeSize(cache.type());
  for (size_t i = 0; i < shape.size(); ++i)
    if (i != axis) (i < axis ? outer : inner) *= static_cast<size_t>(shape[i]);
  const std::span<const std::byte> from = cache.bytes();
  const std::span<std::byte> to = out.bytes();
  const size_t kept = inner * static_cast<size_t>(length);
  for (size_t o = 0; o < outer; ++o)
    std::ranges::copy(from.subspan(o * inner * static_cast<size_t>(before), kept),
                      to.subspan(o * kept).begin());
  return out;
}

Status OnnxRun::Call(std::span<const int32_t> ids, const OrtSession::KeepGoing& keep_going,
                     std::span<const std::string> extra) {
  const auto count = static_cast<int64_t>(ids.size() / masks_.size());
  const int64_t past = length() - count;
  LS_CHECK(length() <= capacity_, "{} of {}", length(), capacity_);
  std::vector<OrtTensor> fed;
  fed.reserve(contract_.fed.size());
  std::vector<OrtSession::Input> inputs;
  for (const OnnxFed& f : contract_.fed) {
    LS_TRY(OrtTensor tensor, Fill(f, ids, past));
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
  auto result = session_.Run(inputs, outputs, [&] {
    stopped = stopped || (keep_going && !keep_going());
    return !stopped;
  });
  // A run that was stopped fails, with words of ONNX Runtime's own.
  if (stopped) return tl::unexpected(Interrupted());
  if (!result) return tl::unexpected(std::move(result).error());
  std::vector<OrtTensor> given = *std::move(result);
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
  rows_ = logits.elements() / vocab_size_ / static_cast<int64_t>(masks_.size());
  if (rows_ != count && rows_ != 1)
    return InputError("the graph's output {} has the shape {}, expected {} positions or 1", name,
                      Shape(shape), count);
  const std::vector<float> values = logits.Floats(0, any_number_ ? 0 : logits.elements());
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

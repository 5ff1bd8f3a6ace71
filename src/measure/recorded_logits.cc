#include "measure/recorded_logits.h"

#include <bit>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/mapped_file.h"

namespace lockstep {
namespace {

constexpr std::string_view kMagic = "_logits_";
constexpr size_t kHeader = 20;

static_assert(std::endian::native == std::endian::little, "the file is little-endian");

template <typename T>
T Load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

class Recorded : public LogitsSource {
 public:
  Recorded(std::shared_ptr<const MappedFile> file, int64_t context, int64_t vocab_size,
           int64_t windows)
      : file_(std::move(file)), context_(context), vocab_size_(vocab_size), windows_(windows) {}

  size_t row_bytes() const { return 8 + static_cast<size_t>(vocab_size_ + 1) / 2 * 4; }
  int64_t first_row() const { return context_ / 2; }
  int64_t rows_of_window() const { return context_ - 1 - first_row(); }

  int64_t vocab_size() const override { return vocab_size_; }
  std::string Name() const override { return "recorded by llama-perplexity"; }
  bool one_call() const override { return false; }
  bool cut_log_probabilities() const override { return true; }
  std::optional<int64_t> limit() const override { return context_; }
  void Reset() override {
    ++window_;
    position_ = 0;
  }
  Result<MatrixView<const float>> Append(std::span<const int32_t> ids, bool wanted) override {
    const std::string place = file_->path().string();
    if (window_ < 0 || window_ >= windows_)
      return UsageError("{}: holds {} windows, the text has more; record it with the same text",
                        place, windows_);
    const auto count = static_cast<int64_t>(ids.size());
    if (position_ + count > context_)
      return UsageError("{}: was recorded with -c {}; give --ctx {} and no --stride", place,
                        context_, context_);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = position_ + i;
      const auto recorded = Load<int32_t>(file_->bytes().data() + kHeader +
                                          static_cast<size_t>(window_ * context_ + at) * 4);
      if (at > 0 && recorded != ids[static_cast<size_t>(i)])
        return UsageError(
            "{}: id {} of window {} is {} in the recording and {} here; record it with the same "
            "text, tokenizer and -c",
            place, at, window_ + 1, recorded, ids[static_cast<size_t>(i)]);
    }
    const int64_t begin = position_;
    position_ += count;
    if (!wanted) return MatrixView<const float>(nullptr, 0, static_cast<size_t>(vocab_size_));
    // Rows of the first half were not recorded: nobody counts them.
    floats_.assign(static_cast<size_t>(count * vocab_size_), 0.0f);
    const std::byte* rows =
        file_->bytes().data() + kHeader + static_cast<size_t>(windows_ * context_) * 4;
    for (int64_t at = std::max(begin, first_row());
         at < std::min(begin + count, first_row() + rows_of_window()); ++at) {
      const std::byte* row =
          rows + static_cast<size_t>(window_ * rows_of_window() + at - first_row()) * row_bytes();
      const auto scale = Load<float>(row), least = Load<float>(row + 4);
      float* out = floats_.data() + (at - begin) * vocab_size_;
      for (int64_t v = 0; v < vocab_size_; ++v)
        out[v] = least + scale * static_cast<float>(Load<uint16_t>(row + 8 + 2 * v));
    }
    return MatrixView<const float>(floats_.data(), static_cast<size_t>(count),
                                   static_cast<size_t>(vocab_size_));
  }

 private:
  std::shared_ptr<const MappedFile> file_;
  int64_t context_, vocab_size_, windows_;
  int64_t window_ = -1, position_ = 0;
  std::vector<float> floats_;
};

}  // namespace

bool IsRecordedLogits(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  char magic[kMagic.size()];
  return file.read(magic, sizeof magic) && std::string_view(magic, sizeof magic) == kMagic;
}

Result<std::unique_ptr<LogitsSource>> OpenRecordedLogits(const std::filesystem::path& path) {
  LS_TRY(const auto file, MappedFile::Open(path));
  const auto bytes = file->bytes();
  if (bytes.size() < kHeader || !file->text().starts_with(kMagic))
    return InputError("{}: does not begin as llama-perplexity's recordings do", path.string());
  const auto context = Load<int32_t>(bytes.data() + 8), vocab = Load<int32_t>(bytes.data() + 12),
             windows = Load<int32_t>(bytes.data() + 16);
  if (context < 2 || vocab < 1 || windows < 1)
    return InputError("{}: its header says windows of {} ids, a vocabulary of {} and {} windows",
                      path.string(), context, vocab, windows);
  auto source = std::make_unique<Recorded>(file, context, vocab, windows);
  // 31-bit counts: no product of these overflows 128 bits, nor, once compared, 64.
  __extension__ typedef unsigned __int128 Wide;
  const Wide expected =
      kHeader + static_cast<Wide>(windows) *
                    (static_cast<Wide>(context) * 4 +
                     static_cast<Wide>(source->rows_of_window()) * source->row_bytes());
  if (bytes.size() != expected)
    return InputError(
        "{}: {} windows of {} ids with a vocabulary of {} need {} bytes, the file has {} (was the "
        "recording interrupted?)",
        path.string(), windows, context, vocab, static_cast<double>(expected), bytes.size());
  return source;
}

}  // namespace lockstep

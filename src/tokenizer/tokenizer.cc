#include "tokenizer/tokenizer.h"

#include <algorithm>

#include "base/utf8.h"
#include "tokenizer/word_cache.h"

namespace lockstep {
namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 31;  // places are 32-bit

bool NeedsPlaces(const std::vector<PreTokenizer>& steps) {
  return std::any_of(steps.begin(), steps.end(), [](const PreTokenizer& step) {
    const auto* metaspace = std::get_if<MetaspaceSplit>(&step);
    return metaspace != nullptr && metaspace->prepend == PrependScheme::kFirst;
  });
}

// Bytes of the text to code points, with the rules of `tokenizers` for ends outside the text
// (BytesToCharOffsetConverter).
class CodePointCounter {
 public:
  explicit CodePointCounter(std::string_view text) : size_(text.size()) {
    if (std::all_of(text.begin(), text.end(),
                    [](char c) { return static_cast<uint8_t>(c) < 0x80; }))
      return;
    index_.reserve(size_);
    uint32_t index = 0;
    for (size_t i = 0; i < size_; i += Utf8Length(text[i]))
      index_.insert(index_.end(), Utf8Length(text[i]), index++);
  }
  Span Convert(Span bytes) const {
    const auto at = [&](uint32_t byte) { return index_.empty() ? byte : index_[byte]; };
    if (bytes.begin >= size_) return bytes;
    if (bytes.end < size_) return {at(bytes.begin), at(bytes.end)};
    const uint32_t last =
        bytes.end > 0 && bytes.end - 1 < size_ ? at(bytes.end - 1) : at(bytes.begin) + 1;
    return {at(bytes.begin), last + 1};
  }

 private:
  size_t size_;
  std::vector<uint32_t> index_;  // empty: ASCII
};

// The place of the bytes [begin, end) of a piece in the original text.
Span PlaceOf(const Pieces& pieces, const Piece& piece, uint32_t begin, uint32_t end) {
  if (begin == end) return {piece.origin + begin, piece.origin + end};
  if (end > piece.text.size())
    return {begin, end};  // more tokens than bytes (suffix and byte fallback)
  if (piece.spans != nullptr) return {piece.spans[begin].begin, piece.spans[end - 1].end};
  const auto start = static_cast<size_t>(piece.text.data() - pieces.original.data());
  size_t first = start + begin, last = start + end;
  const auto inside = [&](size_t i) {
    return (static_cast<uint8_t>(pieces.original[i]) & 0xC0) == 0x80;
  };
  while (first > 0 && inside(first)) --first;
  while (last < pieces.original.size() && inside(last)) ++last;
  return {static_cast<uint32_t>(first), static_cast<uint32_t>(last)};
}

}  // namespace

struct Tokenizer::Data {
  enum Kind : uint8_t {
    kNoToken,
    kOrdinary,
    kAdded,
    kSpecial
  };  // kSpecial: skip_special_tokens drops it

  TokenizerParts parts;  // added_tokens is moved into `added`
  AddedTokens added;
  const Vocabulary* vocabulary = nullptr;
  bool always_track = false;
  std::vector<int32_t> ids_before, ids_after;  // what the post-processors put around a text
  std::vector<Kind> kind;                      // of every id

  std::string_view Text(int32_t id) const {  // of an id whose kind is not kNoToken
    if (kind[static_cast<size_t>(id)] == kOrdinary) return *vocabulary->Text(id);
    return added.FindId(id)->decoded;
  }
  Kind KindOf(int64_t id) const {
    return id >= 0 && static_cast<size_t>(id) < kind.size() ? kind[static_cast<size_t>(id)]
                                                            : kNoToken;
  }

  Status Cut(Pieces& pieces, std::string_view text, const EncodeOptions& options) const;
  template <typename OnToken>  // void(const Piece&, const ModelToken&)
  Status RunModel(const Pieces& pieces, OnToken&& on_token) const;
  void PushTo(DecodeChain& chain, int32_t id, bool skip_special_tokens) const {
    const Kind k = KindOf(id);
    if (k == kNoToken || (k == kSpecial && skip_special_tokens)) return;
    chain.Push(Text(id));
  }
};

Tokenizer::Tokenizer(std::unique_ptr<const Data> data) : data_(std::move(data)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::Make(TokenizerParts parts) {
  auto data = std::make_unique<Data>(Data{.parts = std::move(parts)});
  Data& d = *data;
  LS_TRY(d.added, AddedTokens::Make(std::move(d.parts.added_tokens), d.parts.normalizers));
  d.vocabulary = &VocabularyOf(d.parts.model);
  d.always_track = NeedsPlaces(d.parts.pre_tokenizers);
  if (d.parts.decoders.empty()) d.parts.decoders.push_back(JoinWithSpaces{});

  constexpr int32_t kText = -1;
  std::vector<EncodedToken> around{{.id = kText}};
  PostProcess(d.parts.post_processors, /*add_special_tokens=*/true, /*with_offsets=*/false, around);
  std::vector<int32_t>* side = &d.ids_before;
  for (const EncodedToken& token : around) {
    if (token.id == kText) {
      side = &d.ids_after;
    } else {
      side->push_back(token.id);
    }
  }

  size_t bound = d.vocabulary->id_bound();
  if (!d.added.tokens().empty())
    bound = std::max(bound, static_cast<size_t>(d.added.tokens().back().id) + 1);
  d.kind.resize(bound, Data::kNoToken);
  d.vocabulary->ForEach(
      [&](std::string_view, int32_t id) { d.kind[static_cast<size_t>(id)] = Data::kOrdinary; });
  for (const AddedToken& token : d.added.tokens()) {
    const AddedToken* decoded = d.added.FindContent(token.decoded);
    const bool dropped = decoded != nullptr && decoded->special;
    d.kind[static_cast<size_t>(token.id)] = dropped ? Data::kSpecial : Data::kAdded;
  }
  return Tokenizer(std::move(data));
}

Status Tokenizer::Data::Cut(Pieces& pieces, std::string_view text,
                            const EncodeOptions& options) const {
  if (const auto fault = FindUtf8Fault(text)) {
    return Fail(ErrorCode::kUsage, "the text is not valid UTF-8 at byte {}: {}", fault->valid_up_to,
                fault->error_length
                    ? fmt::format("{} byte(s) from there form no character", *fault->error_length)
                    : "it ends in the middle of a character");
  }
  if (text.size() >= kMaxTextBytes) {
    return Fail(ErrorCode::kUsage, "the text has {} bytes; at most {} can be tokenized at once",
                text.size(), kMaxTextBytes - 1);
  }
  pieces.original = text;
  if (text.empty()) return {};
  pieces.list.push_back({.text = text});
  added.SplitRaw(pieces, options.parse_special, options.untrusted);
  if (!parts.normalizers.empty()) {
    for (Piece& piece : pieces.list) {
      if (piece.token >= 0) continue;
      AlignedText normalized = pieces.Copy(piece);
      LS_RETURN_IF_ERROR(Normalize(parts.normalizers, normalized));
      if (normalized.changed()) piece = pieces.Keep(std::move(normalized));
      if (piece.spans != nullptr && !piece.text.empty()) piece.origin = piece.spans->begin;
    }
    std::erase_if(pieces.list, [](const Piece& piece) { return piece.text.empty(); });
  }
  added.SplitNormalized(pieces, options.parse_special);
  LS_RETURN_IF_ERROR(PreTokenize(parts.pre_tokenizers, pieces));
  return {};
}

template <typename OnToken>
Status Tokenizer::Data::RunModel(const Pieces& pieces, OnToken&& on_token) const {
  return std::visit(
      [&](const auto& model) -> Status {
        WordCache cache(pieces.list.size());
        for (const Piece& piece : pieces.list) {
          if (piece.token >= 0) {
            on_token(piece, ModelToken{piece.token, 0, static_cast<uint32_t>(piece.text.size())});
            continue;
          }
          LS_TRY(const std::span<const ModelToken> tokens, cache.Tokenize(model, piece.text));
          for (const ModelToken& token : tokens) on_token(piece, token);
        }
        return {};
      },
      parts.model);
}

Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  Pieces pieces{.tracked = data_->always_track};
  LS_RETURN_IF_ERROR(data_->Cut(pieces, text, options));
  std::vector<int32_t> ids;
  ids.reserve(pieces.list.size() + 8);
  if (options.add_special_tokens) ids = data_->ids_before;
  LS_RETURN_IF_ERROR(data_->RunModel(
      pieces, [&](const Piece&, const ModelToken& token) { ids.push_back(token.id); }));
  if (options.add_special_tokens)
    ids.insert(ids.end(), data_->ids_after.begin(), data_->ids_after.end());
  return ids;
}

Result<Encoding> Tokenizer::EncodeWithOffsets(std::string_view text, EncodeOptions options) const {
  Pieces pieces{.tracked = true};
  LS_RETURN_IF_ERROR(data_->Cut(pieces, text, options));
  const CodePointCounter counter(text);
  std::vector<EncodedToken> tokens;
  const auto* unigram = std::get_if<Unigram>(&data_->parts.model);
  LS_RETURN_IF_ERROR(data_->RunModel(pieces, [&](const Piece& piece, const ModelToken& token) {
    const Span place = counter.Convert(PlaceOf(pieces, piece, token.begin, token.end));
    std::string_view token_text =
        piece.token >= 0 ? piece.text : *data_->vocabulary->Text(token.id);
    if (piece.token < 0 && unigram != nullptr &&
        token.id == unigram->unk_id()) {  // it keeps its own text
      token_text = piece.text.substr(token.begin, token.end - token.begin);
    }
    tokens.push_back({token.id, place.begin, place.end, token_text});
  }));
  PostProcess(data_->parts.post_processors, options.add_special_tokens, /*with_offsets=*/true,
              tokens);
  Encoding encoding;
  for (const EncodedToken& token : tokens) {
    encoding.ids.push_back(token.id);
    encoding.offsets.push_back({token.begin, token.end});
  }
  return encoding;
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  DecodeChain chain(data_->parts.decoders);
  for (const int32_t id : ids) data_->PushTo(chain, id, skip_special_tokens);
  chain.Finish();
  return chain.TakeText();
}

size_t Tokenizer::vocab_size() const { return data_->kind.size(); }

std::optional<std::string_view> Tokenizer::TokenText(int64_t id) const {
  if (data_->KindOf(id) == Data::kNoToken) return std::nullopt;
  return data_->Text(static_cast<int32_t>(id));
}

std::optional<int32_t> Tokenizer::TokenId(std::string_view text) const {
  if (const AddedToken* token = data_->added.FindContent(text)) return token->id;
  const int32_t id = data_->vocabulary->Find(text);
  if (id < 0) return std::nullopt;
  return id;
}

bool Tokenizer::IsSpecial(int64_t id) const {
  const AddedToken* token = data_->added.FindId(id);
  return token != nullptr && token->special;
}
const std::vector<AddedToken>& Tokenizer::added_tokens() const { return data_->added.tokens(); }
const std::vector<std::string>& Tokenizer::notes() const { return data_->parts.notes; }

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(&tokenizer),
      skip_special_tokens_(skip_special_tokens),
      chain_(tokenizer.data_->parts.decoders) {}

std::string StreamDecoder::Push(int32_t id) {
  tokenizer_->data_->PushTo(chain_, id, skip_special_tokens_);
  return chain_.TakeText();
}

std::string StreamDecoder::Flush() {
  chain_.Finish();
  std::string rest = chain_.TakeText();
  chain_ = DecodeChain(tokenizer_->data_->parts.decoders);
  return rest;
}

VocabularyFit CompareVocabulary(const Tokenizer& tokenizer, size_t embedding_rows) {
  VocabularyFit fit;
  for (size_t id = 0; id < std::max(tokenizer.vocab_size(), embedding_rows); ++id) {
    const bool has_token = tokenizer.TokenText(static_cast<int64_t>(id)).has_value();
    if (has_token && id >= embedding_rows) {
      if (fit.ids_without_row.size() < 16) fit.ids_without_row.push_back(static_cast<int32_t>(id));
      ++fit.num_ids_without_row;
    }
    fit.rows_without_token += !has_token && id < embedding_rows;
  }
  if (fit.num_ids_without_row > 0) {
    const int32_t first = fit.ids_without_row.front();
    fit.message = fmt::format(
        "the tokenizer has {} token(s) beyond the {} rows of the embedding, the first is {} "
        "\"{}\"; prompts with them "
        "cannot be run",
        fit.num_ids_without_row, embedding_rows, first, *tokenizer.TokenText(first));
  } else if (fit.rows_without_token > 0) {
    fit.message = fmt::format(
        "{} of the {} rows of the embedding have no token (the tokenizer's largest id is {}); a "
        "model that picks one of them writes nothing",
        fit.rows_without_token, embedding_rows, static_cast<int64_t>(tokenizer.vocab_size()) - 1);
  }
  return fit;
}

}  // namespace lockstep

#include "formats/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/utf8.h"

namespace lockstep {
namespace {

struct Signature {
  std::string_view magic;
  std::string_view phrase;
};
constexpr Signature kSignatures[] = {
    {"version https://git-lfs.github.com/spec/",
     "a Git LFS pointer, not the file itself (fetch it with `git lfs pull`)"},
    {"PK\x03\x04",
     "a zip archive, perhaps a PyTorch checkpoint (convert it to safetensors with "
     "save_pretrained(..., safe_serialization=True))"},
    {"\x80\x02", "a Python pickle, perhaps a PyTorch checkpoint (convert it to safetensors)"},
    {"\x80\x04", "a Python pickle, perhaps a PyTorch checkpoint (convert it to safetensors)"},
    {"GGUF", "a GGUF file"},
    {"lmgg", "a GGML file from before GGUF (convert it with a current llama.cpp)"},
    {"fmgg", "a GGML file from before GGUF (convert it with a current llama.cpp)"},
    {"tjgg", "a GGML file from before GGUF (convert it with a current llama.cpp)"},
    {"\x1f\x8b", "gzip data (unpack it first)"},
    {"\x28\xb5\x2f\xfd", "zstandard data (unpack it first)"},
    {"\x89HDF\r\n", "an HDF5 file (convert it to safetensors)"},
};

bool StartsWithIgnoringCase(std::string_view text, std::string_view prefix) {
  if (text.size() < prefix.size()) return false;
  for (size_t i = 0; i < prefix.size(); ++i) {
    const char c = text[i];
    if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) != prefix[i]) return false;
  }
  return true;
}

std::string_view Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

bool LooksLikeSafetensors(std::span<const std::byte> bytes) {
  // A header never has 2^40 bytes: a text file that happens to hold '{' at byte 8 is told apart.
  return bytes.size() >= 9 && bytes[8] == std::byte{'{'} && bytes[5] == std::byte{0} &&
         bytes[6] == std::byte{0} && bytes[7] == std::byte{0};
}

bool LooksLikeGguf(std::span<const std::byte> bytes) { return Text(bytes).starts_with("GGUF"); }

std::string DescribeContent(std::span<const std::byte> bytes) {
  const std::string_view head = Text(bytes.first(std::min<size_t>(bytes.size(), 256)));
  if (head.empty()) return "an empty file (download incomplete?)";
  for (const Signature& signature : kSignatures)
    if (head.starts_with(signature.magic)) return std::string(signature.phrase);
  if (LooksLikeSafetensors(bytes)) return "a safetensors file";
  const size_t first = head.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (first != std::string_view::npos) {
    const std::string_view text = head.substr(first);
    if (StartsWithIgnoringCase(text, "<!doctype html") || StartsWithIgnoringCase(text, "<html"))
      return "an HTML page (the download returned a web page instead of the file)";
    if (text.front() == '<') return "XML or HTML text (an error page from the download?)";
    if (text.front() == '{' || text.front() == '[') return "JSON text";
  }
  if (std::all_of(head.begin(), head.end(), [](char c) { return c == '\0'; }))
    return "zero bytes (download incomplete?)";
  const bool printable = std::all_of(head.begin(), head.end(), [](char c) {
    const auto u = static_cast<unsigned char>(c);
    return u >= 0x20 || u == '\n' || u == '\r' || u == '\t';
  });
  if (printable)
    return fmt::format("text that begins {}", Quoted(head.substr(0, head.find_first_of("\r\n"))));
  std::string hex;
  for (size_t i = 0; i < std::min<size_t>(head.size(), 8); ++i)
    hex += fmt::format("{}{:02x}", i == 0 ? "" : " ", static_cast<unsigned char>(head[i]));
  return fmt::format("bytes that begin {}", hex);
}

std::string ShapeText(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace lockstep

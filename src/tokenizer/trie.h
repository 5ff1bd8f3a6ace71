// ByteTrie: texts to values, walked byte by byte. Finds the added tokens in a text and the pieces
// of a Unigram vocabulary.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/flat_map.h"

namespace lockstep {

class ByteTrie {
 public:
  bool empty() const { return values_.size() == 1 && values_[0] < 0; }

  void Insert(std::string_view text, int32_t value) {
    uint32_t node = 0;
    for (const char c : text) {
      const uint64_t key = Key(node, c);
      if (const uint32_t* child = children_.Find(key)) {
        node = *child;
        continue;
      }
      const auto created = static_cast<uint32_t>(values_.size());
      children_[key] = created;
      values_.push_back(-1);
      if (node == 0) starts_[static_cast<uint8_t>(c)] = true;
      node = created;
    }
    values_[node] = value;
  }

  // Whether some text begins with this byte: lets a scan skip most of its input.
  bool Starts(char c) const { return starts_[static_cast<uint8_t>(c)]; }

  // Calls f(length, value) for every stored text that `text` begins with, shortest first.
  template <typename F>
  void ForEachPrefix(std::string_view text, F&& f) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const uint32_t* child = children_.Find(Key(node, text[i]));
      if (child == nullptr) return;
      node = *child;
      if (values_[node] >= 0) f(i + 1, values_[node]);
    }
  }

 private:
  static uint64_t Key(uint32_t node, char c) {
    return uint64_t{node} << 8 | static_cast<uint8_t>(c);
  }

  FlatMap<uint32_t> children_;
  std::vector<int32_t> values_{-1};
  std::array<bool, 256> starts_{};
};

}  // namespace lockstep

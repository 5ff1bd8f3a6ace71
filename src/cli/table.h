// Table: columns of text, aligned; and numbers as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class Table {
 public:
  enum class Align { kLeft, kRight };
  // `columns` are headings; an empty list of headings prints none.
  Table(std::vector<std::string> columns, std::vector<Align> align)
      : columns_(std::move(columns)), align_(std::move(align)) {}

  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  // Lines end in '\n', without trailing spaces; each begins with `indent` spaces.
  std::string Text(size_t indent = 0) const;

 private:
  std::vector<std::string> columns_;
  std::vector<Align> align_;
  std::vector<std::vector<std::string>> rows_;
};

size_t TextWidth(std::string_view text);   // code points; wide East Asian characters count twice
std::string WithCommas(int64_t n);         // 124,439,808
std::string HumanBytes(double bytes);      // "1.05 GiB"
std::string HumanSeconds(double seconds);  // "850 ms", "12.3 s", "2 min 05 s"
std::string Scientific(double x);          // "3.1e-05"; "0"; "inf"

}  // namespace lockstep

#include "cli/line_reader.h"

#include <unistd.h>

#include <cerrno>

#include "cli/terminal.h"

namespace lockstep {

LineReader::End LineReader::NextPhysical(std::string& line) {
  for (;;) {
    if (const size_t newline = buffer_.find('\n'); newline != std::string::npos) {
      line = buffer_.substr(0, newline);
      buffer_.erase(0, newline + 1);
      if (line.ends_with('\r')) line.pop_back();
      return End::kLine;
    }
    if (at_end_) {
      if (buffer_.empty()) return End::kEndOfInput;
      line = std::move(buffer_);
      buffer_.clear();
      return End::kLine;
    }
    char bytes[4096];
    const ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) {
      if (WasInterrupted()) return End::kInterrupted;
      continue;
    }
    if (n <= 0)
      at_end_ = true;
    else
      buffer_.append(bytes, static_cast<size_t>(n));
  }
}

LineReader::End LineReader::Next(std::string& line) {
  line.clear();
  for (std::string part;;) {
    const End end = NextPhysical(part);
    if (end == End::kEndOfInput && !line.empty()) return End::kLine;
    if (end != End::kLine) return end;
    line += part;
    if (!line.ends_with('\\')) return End::kLine;
    line.back() = '\n';
  }
}

}  // namespace lockstep

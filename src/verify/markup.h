// Text as HTML and XML hold it: what a file or a program calls itself enters reports through here.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Safe inside elements and quoted attributes of both: & < > " ' become references; bytes that are
// not UTF-8, and code points that XML 1.0 forbids even as references, become U+FFFD.
std::string EscapeMarkup(std::string_view text);

}  // namespace lockstep

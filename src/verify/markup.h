// Text as HTML and XML hold it: what a file or a program calls itself enters reports through here.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// CSS that a page of ours begins with: its colours, by day and by night.
inline constexpr std::string_view kPageColours =
    ":root{color-scheme:light dark;--paper:#fbfaf7;--card:#fff;--ink:#1e2127;--soft:#69707a;"
    "--line:#e3e1da;--good:#1a7f4b;--fair:#9a6a00;--bad:#c2293b;--blue:#2f5fb3;--noise:#8892a0;"
    "--allowed:#1a7f4b;--rounding:#c98a00}\n"
    "@media (prefers-color-scheme:dark){:root{--paper:#14161a;--card:#1c1f25;--ink:#e8e6e1;"
    "--soft:#9aa2ad;--line:#31353d;--good:#4cc38a;--fair:#e2b04a;--bad:#ff7382;--blue:#8ab0f5;"
    "--noise:#7d8795;--allowed:#4cc38a;--rounding:#e2b04a}}\n";

// Safe inside elements and quoted attributes of both: & < > " ' become references; bytes that are
// not UTF-8, and code points that XML 1.0 forbids even as references, become U+FFFD.
std::string EscapeMarkup(std::string_view text);

}  // namespace lockstep

// strftime_now: the date and time that a chat template may print, in English on every machine.
#pragma once

#include <string>
#include <string_view>

#include "jinja/error.h"

namespace lockstep::jinja {

// A local time without a zone, as Python's datetime.now() gives.
struct Clock {
  int year = 1970, month = 1, day = 1;  // month and day from 1
  int hour = 0, minute = 0, second = 0, microsecond = 0;
};

Clock SystemClock();  // this machine's local time

// Python's datetime.strftime on glibc, in the C locale; with the flags - _ 0 ^ #.
std::string FormatTime(const Clock& clock, std::string_view format);

}  // namespace lockstep::jinja

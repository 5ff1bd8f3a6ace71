#include "jinja/time.h"

#include <chrono>
#include <ctime>

namespace lockstep::jinja {
namespace {

constexpr std::string_view kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                      "Thursday", "Friday", "Saturday"};
constexpr std::string_view kMonths[] = {"January",   "February", "March",    "April",
                                        "May",       "June",     "July",     "August",
                                        "September", "October",  "November", "December"};

bool IsLeap(int year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

// Days since 1970-01-01 (the proleptic Gregorian calendar; Howard Hinnant's days_from_civil).
int64_t DaysFromCivil(int y, int m, int d) {
  y -= m <= 2;
  const int64_t era = (y >= 0 ? y : y - 399) / 400;
  const int64_t yoe = y - era * 400;
  const int64_t doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
  const int64_t doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
  return era * 146097 + doe - 719468;
}

struct Week {
  int year, week;
};
Week IsoWeek(int year, int yday, int wday) {
  const int monday_based = (wday + 6) % 7;
  int week = (yday - monday_based + 10) / 7;
  if (week < 1) {
    --year;
    const int days = IsLeap(year) ? 366 : 365;
    return {year, (yday + days - monday_based + 10) / 7};
  }
  const int days = IsLeap(year) ? 366 : 365;
  if (week == 53 && yday - monday_based + 3 >= days) return {year + 1, 1};
  return {year, week};
}

}  // namespace

Clock SystemClock() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm local{};
  localtime_r(&seconds, &local);
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
  return {local.tm_year + 1900,
          local.tm_mon + 1,
          local.tm_mday,
          local.tm_hour,
          local.tm_min,
          local.tm_sec,
          static_cast<int>(micros % 1000000)};
}

std::string FormatTime(const Clock& clock, std::string_view format) {
  const int64_t days = DaysFromCivil(clock.year, clock.month, clock.day);
  const int wday = static_cast<int>(((days + 4) % 7 + 7) % 7);  // 1970-01-01 was a Thursday
  const int yday = static_cast<int>(days - DaysFromCivil(clock.year, 1, 1));
  const int hour12 = clock.hour % 12 == 0 ? 12 : clock.hour % 12;
  const size_t month = static_cast<size_t>((clock.month - 1) % 12);
  const Week iso = IsoWeek(clock.year, yday, wday);

  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    const size_t start = i++;
    char flag = 0;
    while (i < format.size() && std::string_view("-_0^#").find(format[i]) != std::string_view::npos)
      flag = format[i++];
    if (i == format.size()) {
      out += format.substr(start);
      break;
    }
    const auto number = [&](int64_t n, int width, char pad = '0') {
      if (flag == '-') width = 1;
      if (flag == '_') pad = ' ';
      if (flag == '0') pad = '0';
      std::string digits = std::to_string(n);
      if (static_cast<int>(digits.size()) < width)
        digits.insert(0, static_cast<size_t>(width) - digits.size(), pad);
      out += digits;
    };
    const auto word = [&](std::string_view text) {
      for (char c : text) {
        if ((flag == '^' || flag == '#') && c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
        out += c;
      }
    };
    switch (format[i]) {
      case 'a':
        word(kDays[wday].substr(0, 3));
        break;
      case 'A':
        word(kDays[wday]);
        break;
      case 'b':
      case 'h':
        word(kMonths[month].substr(0, 3));
        break;
      case 'B':
        word(kMonths[month]);
        break;
      case 'c':
        out += FormatTime(clock, "%a %b %e %H:%M:%S %Y");
        break;
      case 'C':
        number(clock.year / 100, 2);
        break;
      case 'd':
        number(clock.day, 2);
        break;
      case 'D':
      case 'x':
        out += FormatTime(clock, "%m/%d/%y");
        break;
      case 'e':
        number(clock.day, 2, ' ');
        break;
      case 'f':
        number(clock.microsecond, 6);
        break;
      case 'F':
        out += FormatTime(clock, "%Y-%m-%d");
        break;
      case 'g':
        number(iso.year % 100, 2);
        break;
      case 'G':
        number(iso.year, 4);
        break;
      case 'H':
        number(clock.hour, 2);
        break;
      case 'I':
        number(hour12, 2);
        break;
      case 'j':
        number(yday + 1, 3);
        break;
      case 'k':
        number(clock.hour, 2, ' ');
        break;
      case 'l':
        number(hour12, 2, ' ');
        break;
      case 'm':
        number(clock.month, 2);
        break;
      case 'M':
        number(clock.minute, 2);
        break;
      case 'n':
        out += '\n';
        break;
      case 'p':
        if (flag == '#') {
          out += clock.hour < 12 ? "am" : "pm";
        } else {
          out += clock.hour < 12 ? "AM" : "PM";
        }
        break;
      case 'P':
        out += clock.hour < 12 ? "am" : "pm";
        break;
      case 'r':
        out += FormatTime(clock, "%I:%M:%S %p");
        break;
      case 'R':
        out += FormatTime(clock, "%H:%M");
        break;
      case 's':
        number(days * 86400 + clock.hour * 3600 + clock.minute * 60 + clock.second, 1);
        break;
      case 'S':
        number(clock.second, 2);
        break;
      case 't':
        out += '\t';
        break;
      case 'T':
      case 'X':
        out += FormatTime(clock, "%H:%M:%S");
        break;
      case 'u':
        number(wday == 0 ? 7 : wday, 1);
        break;
      case 'U':
        number((yday + 7 - wday) / 7, 2);
        break;
      case 'V':
        number(iso.week, 2);
        break;
      case 'w':
        number(wday, 1);
        break;
      case 'W':
        number((yday + 7 - (wday + 6) % 7) / 7, 2);
        break;
      case 'y':
        number(clock.year % 100, 2);
        break;
      case 'Y':
        number(clock.year, 1);
        break;
      case 'z':
      case 'Z':
        break;  // a naive time has no zone
      case '%':
        out += '%';
        break;
      default:
        out += format.substr(start, i - start + 1);
    }
  }
  return out;
}

}  // namespace lockstep::jinja

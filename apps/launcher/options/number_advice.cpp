#include "launcher/options/number_advice.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace dslaunch::launcher {

std::string foreign_number_advice(const std::string& value) {
    for (const char* dash : {"\u2010", "\u2011", "\u2012", "\u2013", "\u2014", "\u2212"})
        if (value.find(dash) != std::string::npos)
            return "; its dash is not a minus sign: type `-`";
    if (value.find_first_of(",_") != std::string::npos)
        return "; write numbers with a decimal point and without thousands separators: 2.5e-4, "
               "1000";
    const char unit = value.size() < 2 ? ' ' : value.back();
    if (!parse_int(std::string_view(value).substr(0, value.size() - 1))) return "";
    if (unit == 'k' || unit == 'K')
        return fmt::format("; write {0}000, or a power of two, without the {1}",
                           value.substr(0, value.size() - 1), unit);
    if (unit == 's' || unit == 'm' || unit == 'h')
        return "; this is a plain number (of steps, rows or tokens), not a time";
    return "";
}

std::string plain_advice(const std::string& value, int64_t least, int64_t most) {
    constexpr double kExactMax = 9e15;
    const auto other = parse_double(value);
    if (!other || !(std::abs(*other) < kExactMax) || std::floor(*other) != *other) return "";
    const auto whole = static_cast<int64_t>(*other);
    return whole < least || whole > most ? "" : fmt::format("; write {}", whole);
}

std::string seconds_advice(const std::string& value) {
    double seconds = 0;
    const std::vector<std::string> parts = split(value, ':');
    if (parts.size() == 2 || parts.size() == 3) {
        for (const std::string& part : parts) {
            const auto number = parse_int(part);
            if (!number || *number < 0) return "";
            seconds = seconds * 60 + static_cast<double>(*number);
        }
    } else {
        std::string digits;
        bool has_unit = false;
        for (const char c : lower(value)) {
            const double unit = c == 's'   ? 1
                                : c == 'm' ? 60
                                : c == 'h' ? 3600
                                : c == 'd' ? 86'400
                                           : 0;
            if (unit == 0) {
                digits += c;
                continue;
            }
            const auto number = parse_double(digits);
            if (!number || !(*number >= 0)) return "";
            seconds += *number * unit;
            digits.clear();
            has_unit = true;
        }
        if (!has_unit || !digits.empty()) return "";
    }
    return fmt::format("; give the time in seconds: {}", seconds);
}

}  // namespace dslaunch::launcher

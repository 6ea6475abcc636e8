#include "text/subword/serde_number.h"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace dslaunch::text {
namespace {

constexpr int kPowersMax = 308;

double power_of_ten(int exponent) {
    const std::string text = fmt::format("1e{}", exponent);
    double power = 0;
    std::from_chars(text.data(), text.data() + text.size(), power);
    return power;
}

}  // namespace

double as_serde_reads(double nearest) {
    std::array<char, 32> buffer;
    const auto written = std::to_chars(buffer.data(), buffer.data() + buffer.size(),
                                       std::fabs(nearest), std::chars_format::scientific);
    const std::string text(buffer.data(), written.ptr);
    // The text is digits with a point after the first one, then an exponent.
    uint64_t digits = 0;
    int exponent = 0;
    size_t at = 0;
    for (bool is_fraction = false; at < text.size() && text[at] != 'e'; ++at) {
        if (text[at] == '.') {
            is_fraction = true;
            continue;
        }
        digits = digits * 10 + static_cast<uint64_t>(text[at] - '0');
        if (is_fraction) --exponent;
    }
    exponent += std::atoi(text.c_str() + at + 1);
    auto value = static_cast<double>(digits);
    for (; value != 0 && exponent < -kPowersMax; exponent += kPowersMax) value /= 1e308;
    if (exponent >= 0) {
        value *= power_of_ten(exponent);
    } else {
        value /= power_of_ten(-exponent);
    }
    return std::signbit(nearest) ? -value : value;
}

}  // namespace dslaunch::text

#include "launcher/report/chart_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace dslaunch::launcher {
namespace {

constexpr double kLogFrom = 10;

// Returns DIGITS, decimal digits, with a comma before each group of three.
std::string with_commas(std::string digits) {
    const size_t first = digits.starts_with('-') ? 1 : 0;
    for (size_t at = digits.size(); at > first + 3;) {
        at -= 3;
        digits.insert(at, ",");
    }
    return digits;
}

// Returns the text of VALUE, a multiple of STEP.
std::string tick_text(double value, double step) {
    const double size = std::max(std::abs(value), step);
    // Neighbouring ticks need this many digits to differ.
    const int digits = 1 + static_cast<int>(std::floor(std::log10(size) + 1e-9) -
                                            std::floor(std::log10(step) + 1e-9));
    const bool is_plain = size >= 1e-3 && (size < 1e6 || (size < 1e12 && digits > 4 && step >= 1));
    if (!is_plain)
        return value == 0 ? "0" : fmt::format("{:.{}g}", value, std::clamp(digits, 4, 17));
    const int decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
    return decimals == 0 ? with_commas(fmt::format("{:.0f}", value))
                         : fmt::format("{:.{}f}", value, decimals);
}

std::vector<ChartTick> linear_ticks(const ChartScale& scale, int most) {
    const double range = scale.to - scale.from;
    const double power = std::pow(10, std::floor(std::log10(range / most)));
    double step = power;
    for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
        step = factor * power;
        const double count =
            std::floor(scale.to / step + 1e-9) - std::ceil(scale.from / step - 1e-9) + 1;
        if (count <= most) break;
    }
    std::vector<ChartTick> ticks;
    const double first = std::ceil(scale.from / step - 1e-9);
    for (int i = 0; i <= most; ++i) {
        const double value = (first + i) * step;
        if (value > scale.to + step * 1e-9) break;
        ticks.push_back({value, tick_text(value, step)});
    }
    return ticks;
}

std::vector<ChartTick> log_ticks(const ChartScale& scale, int most) {
    const int low = static_cast<int>(std::floor(std::log10(scale.from)));
    const int high = static_cast<int>(std::ceil(std::log10(scale.to)));
    const int stride = std::max(1, (high - low + most) / most);
    const auto make = [&](std::span<const double> factors) {
        std::vector<ChartTick> ticks;
        for (int power = low; power <= high; ++power) {
            if ((power - low) % stride != 0) continue;
            for (const double factor : factors) {
                const double value = factor * std::pow(10, power);
                if (value >= scale.from * (1 - 1e-9) && value <= scale.to * (1 + 1e-9))
                    ticks.push_back({value, number_text(value)});
            }
        }
        return ticks;
    };
    constexpr double kDense[] = {1, 2, 5};
    constexpr double kPowers[] = {1};
    std::vector<ChartTick> dense = make(kDense);
    return stride > 1 || static_cast<int>(dense.size()) > most ? make(kPowers) : dense;
}

// The points of a series that are in the same column of a picture.
struct Column {
    std::vector<size_t> kept;  // first, least, largest, last, and the first gap
    size_t least = 0, largest = 0, last = 0;
    bool has_value = false, has_gap = false;
};

}  // namespace

double ChartScale::part(double value) const {
    if (!is_log) return (value - from) / (to - from);
    return std::log(value / from) / std::log(to / from);
}

std::string number_text(double value) {
    if (!std::isfinite(value)) return "not a number";
    const double size = std::abs(value);
    if (size >= 1000 && size < 1e8) return with_commas(fmt::format("{:.0f}", value));
    return fmt::format("{:.4g}", value);
}

std::vector<ChartTick> ticks_of(const ChartScale& scale, int most) {
    return scale.is_log ? log_ticks(scale, most) : linear_ticks(scale, most);
}

ChartScale fitted_scale(double least, double largest, ScaleWish wish) {
    if (!std::isfinite(least) || !std::isfinite(largest)) return {};
    if (wish == ScaleWish::kLogIfWide && least > 0 && largest > kLogFrom * least)
        return {least / 1.1, largest * 1.1, true};
    if (wish == ScaleWish::kFromZero) {
        if (least >= 0) return {0, largest > 0 ? largest * 1.05 : 1, false};
        if (largest <= 0) return {least * 1.05, 0, false};
    }
    // If LARGEST and LEAST differ by less than this, the scale gets wide margins, because doubles
    // are too coarse for a narrow scale.
    const double around = std::max(std::abs(largest) * 1e-6, 1e-300);
    if (largest - least < around) {
        const double half = largest == 0 ? 1 : std::abs(largest) * 0.5;
        return {least - half, largest + half, false};
    }
    const double margin = (largest - least) * 0.05;
    return {least - margin, largest + margin, false};
}

MetricSeries thinned(std::span<const MetricPoint> series, const ChartScale& steps, int columns) {
    if (series.size() <= static_cast<size_t>(columns)) return {series.begin(), series.end()};
    MetricSeries kept;
    Column column;
    const auto flush = [&] {
        if (column.has_value)
            column.kept.insert(column.kept.end(), {column.least, column.largest, column.last});
        std::ranges::sort(column.kept);
        const auto repeated = std::ranges::unique(column.kept);
        column.kept.erase(repeated.begin(), repeated.end());
        for (const size_t i : column.kept) kept.push_back(series[i]);
        column = {};
    };
    int current = -1;
    for (size_t i = 0; i < series.size(); ++i) {
        const double part = steps.part(series[i].step);
        if (part < 0 || part > 1) continue;
        const int at = std::min(static_cast<int>(part * columns), columns - 1);
        if (at != current) flush();
        current = at;
        const double value = series[i].value;
        if (!std::isfinite(value)) {
            if (!std::exchange(column.has_gap, true)) column.kept.push_back(i);
            continue;
        }
        if (!std::exchange(column.has_value, true)) {
            column.kept.push_back(i);
            column.least = column.largest = i;
        }
        if (value < series[column.least].value) column.least = i;
        if (value > series[column.largest].value) column.largest = i;
        column.last = i;
    }
    flush();
    return kept;
}

MetricSeries column_means(std::span<const MetricPoint> series, const ChartScale& steps,
                          int columns) {
    MetricSeries means;
    int current = -1;
    double count = 0;
    for (const MetricPoint& point : series) {
        const double part = steps.part(point.step);
        if (part < 0 || part > 1 || !std::isfinite(point.value)) continue;
        const int at = std::min(static_cast<int>(part * columns), columns - 1);
        if (at != current) {
            means.push_back({0, 0});
            count = 0;
        }
        current = at;
        ++count;
        means.back().step += (point.step - means.back().step) / count;
        means.back().value += (point.value - means.back().value) / count;
    }
    return means;
}

}  // namespace dslaunch::launcher

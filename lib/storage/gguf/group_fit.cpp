#include "storage/gguf/group_fit.h"

#include <cmath>

namespace dslaunch::storage {
namespace {

// Four numbers that processors add and multiply at once.
using Four = float __attribute__((vector_size(16)));

Four four_at(const float* from) {
    Four four;
    __builtin_memcpy(&four, from, sizeof four);
    return four;
}

Four codes_of(Four values, CodeRange range) {
    const Four low = {range.low, range.low, range.low, range.low};
    const Four high = {range.high, range.high, range.high, range.high};
    values = values < low ? low : values;
    values = values > high ? high : values;
    return values + kWholeShift - kWholeShift;
}

// Sums in eight lanes.
struct Lanes {
    Four first{}, second{};

    [[nodiscard]] double sum() const {
        const Four both = first + second;
        return static_cast<double>((both[0] + both[2]) + (both[1] + both[3]));
    }
};

// The search tries several scales. Each scale gives the group's number of largest size a code near
// an end of the range of codes: between kAround below that end and kAround above it, in steps of
// kStep. Codes beyond an end are replaced by the end.
constexpr float kAround = 1.0F;
constexpr float kStep = 0.25F;
constexpr int kRefinements = 3;

// Sums over a group for given codes q, with importance w and numbers x.
struct CodeSums {
    double q = 0;   // w q
    double qq = 0;  // w q q
    double qx = 0;  // w q x
};

// Sums over a group that do not depend on codes.
struct NumberSums {
    double w = 0;
    double x = 0;
    double xx = 0;
};

NumberSums number_sums(const NumberGroup& group) {
    Lanes w, x, xx;
    const auto add = [&](size_t i, Four Lanes::*lane) {
        const Four number = four_at(group.numbers + i), weight = four_at(group.importance + i);
        w.*lane += weight;
        x.*lane += weight * number;
        xx.*lane += weight * number * number;
    };
    for (size_t i = 0; i < group.numel; i += kLanes) {
        add(i, &Lanes::first);
        add(i + kLanes / 2, &Lanes::second);
    }
    return {w.sum(), x.sum(), xx.sum()};
}

// Returns the sums for the codes that result from rounding FACTOR * (x + MINIMUM).
CodeSums code_sums(const NumberGroup& group, float factor, float minimum, CodeRange range) {
    Lanes q, qq, qx;
    const auto add = [&](size_t i, Four Lanes::*lane) {
        const Four number = four_at(group.numbers + i);
        const Four code = codes_of((number + minimum) * factor, range);
        const Four weighted = four_at(group.importance + i) * code;
        q.*lane += weighted;
        qq.*lane += weighted * code;
        qx.*lane += weighted * number;
    };
    for (size_t i = 0; i < group.numel; i += kLanes) {
        add(i, &Lanes::first);
        add(i + kLanes / 2, &Lanes::second);
    }
    return {q.sum(), qq.sum(), qx.sum()};
}

// Returns the number with the largest absolute value.
float largest(const NumberGroup& group) {
    float most = 0;
    for (size_t i = 0; i < group.numel; ++i)
        if (std::abs(group.numbers[i]) > std::abs(most)) most = group.numbers[i];
    return most;
}

std::array<float, 2> ends_of(const NumberGroup& group, bool is_free) {
    const auto [low, high] =
        std::minmax_element(group.numbers, group.numbers + static_cast<ptrdiff_t>(group.numel));
    if (is_free) return {*low, *high};
    return {std::min(*low, 0.0F), std::max(*high, 0.0F)};
}

struct Found {
    GroupFit fit;
    double error = INFINITY;

    void offer(const GroupFit& other, double its_error) {
        if (its_error < error) *this = {other, its_error};
    }
};

// Returns the best scale and minimum for given codes, and the error with them.
Found solve(const NumberSums& all, const CodeSums& codes, bool is_free) {
    const double det = codes.qq * all.w - codes.q * codes.q;
    double scale = 0, minimum = 0;
    if (det > 1e-12 * codes.qq * all.w) {
        scale = (codes.qx * all.w - codes.q * all.x) / det;
        minimum = (codes.q * codes.qx - codes.qq * all.x) / det;
    }
    if (det <= 1e-12 * codes.qq * all.w || (minimum < 0 && !is_free)) {
        minimum = 0;
        scale = codes.qq > 0 ? codes.qx / codes.qq : 0;
    }
    if (!(scale > 0)) return {};
    const double error = all.xx + scale * scale * codes.qq + minimum * minimum * all.w -
                         2 * scale * codes.qx + 2 * minimum * all.x - 2 * scale * minimum * codes.q;
    return {{static_cast<float>(scale), static_cast<float>(minimum)}, error};
}

}  // namespace

double error_of(const NumberGroup& group, const GroupFit& fit, CodeRange range) {
    const float factor = fit.scale == 0 ? 0 : 1 / fit.scale;
    Lanes sums;
    const auto add = [&](size_t i, Four Lanes::*lane) {
        const Four number = four_at(group.numbers + i);
        const Four code = codes_of((number + fit.minimum) * factor, range);
        const Four off = fit.scale * code - fit.minimum - number;
        sums.*lane += four_at(group.importance + i) * off * off;
    };
    for (size_t i = 0; i < group.numel; i += kLanes) {
        add(i, &Lanes::first);
        add(i + kLanes / 2, &Lanes::second);
    }
    return sums.sum();
}

double write_codes(const NumberGroup& group, const GroupFit& fit, CodeRange range, int16_t* codes) {
    const float factor = fit.scale == 0 ? 0 : 1 / fit.scale;
    double sum = 0;
    for (size_t i = 0; i < group.numel; ++i) {
        const float number = group.numbers[i];
        const float code = code_of((number + fit.minimum) * factor, range);
        const float off = fit.scale * code - fit.minimum - number;
        sum += static_cast<double>(group.importance[i] * off * off);
        codes[i] = static_cast<int16_t>(code);
    }
    return sum;
}

GroupFit plain_scale(const NumberGroup& group, CodeRange range) {
    return {largest(group) / range.low, 0};
}

GroupFit plain_both(const NumberGroup& group, CodeRange range, bool is_free) {
    const auto [low, high] = ends_of(group, is_free);
    return {(high - low) / range.high, -low};
}

GroupFit fit_scale(const NumberGroup& group, CodeRange range) {
    const float most = largest(group);
    if (most == 0) return {};
    double best = 0;
    float scale = 0;
    // Computes the codes that result from multiplication by FACTOR, and returns the best scale for
    // them. Updates `best` and `scale`.
    const auto look = [&](float factor) {
        const CodeSums sums = code_sums(group, factor, 0, range);
        if (sums.qq <= 0) return 0.0F;
        const auto own = static_cast<float>(sums.qx / sums.qq);
        if (sums.qx * sums.qx > best * sums.qq) {
            best = sums.qx * sums.qx / sums.qq;
            scale = own;
        }
        return own;
    };
    for (const float end : {range.low, range.high})
        for (float more = -kAround; more <= kAround; more += kStep) look((end + more) / most);
    for (int i = 0; i < kRefinements && scale != 0; ++i) {
        const float before = scale;
        look(1 / scale);
        if (scale == before) break;
    }
    return {scale, 0};
}

GroupFit fit_both(const NumberGroup& group, CodeRange range, bool is_free) {
    const auto [low, high] = ends_of(group, is_free);
    if (low == high) return {0, -low};
    const NumberSums all = number_sums(group);
    Found best;
    for (float more = -kAround; more <= kAround; more += kStep) {
        const float factor = (range.high + more) / (high - low);
        Found found = solve(all, code_sums(group, factor, -low, range), is_free);
        best.offer(found.fit, found.error);
        for (int i = 0; i < kRefinements && found.fit.scale > 0; ++i) {
            const Found next = solve(
                all, code_sums(group, 1 / found.fit.scale, found.fit.minimum, range), is_free);
            if (!(next.error < found.error)) break;
            found = next;
            best.offer(found.fit, found.error);
        }
    }
    return best.error < INFINITY ? best.fit : plain_both(group, range, is_free);
}

}  // namespace dslaunch::storage

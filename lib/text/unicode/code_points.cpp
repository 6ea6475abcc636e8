#include "text/unicode/code_points.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "base/check.h"
#include "base/text.h"

namespace dslaunch::text {
namespace {

constexpr uint32_t kClasses[] = {
#include "text/unicode/code_point_classes.inc"
};
constexpr uint32_t kRuns[] = {
#include "text/unicode/code_point_runs.inc"
};

struct LowerRun {
    char32_t first;
    char32_t last;
    int step;
    int shift;
};
constexpr LowerRun kLowerRuns[] = {
#include "text/unicode/lower_case_runs.inc"
};
constexpr char32_t kDottedI = 0x130;

// Returns the length of the valid UTF-8 sequence at TEXT[I]. If the sequence is not valid, returns
// `-n`: the caller then replaces n bytes by one U+FFFD.
int sequence_length(std::string_view text, size_t i) {
    const auto byte = [&](size_t at) -> unsigned {
        return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
    };
    const unsigned first = byte(i);
    if (first < 0x80) return 1;
    if (first < 0xC2 || first > 0xF4) return -1;
    const int length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    unsigned low = 0x80, high = 0xBF;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
    for (int k = 1; k < length; ++k) {
        const unsigned next = byte(i + static_cast<size_t>(k));
        if (next < low || next > high) return -k;
        low = 0x80;
        high = 0xBF;
    }
    return length;
}

}  // namespace

const CodePoints& CodePoints::table() {
    static const CodePoints table;
    return table;
}

CodePoints::CodePoints() : classes_(std::begin(kClasses), std::end(kClasses)), stages_{} {
    std::vector<uint8_t> all;
    all.reserve(kCodePointLimit);
    for (size_t i = 0; i < std::size(kRuns); i += 2) {
        all.insert(all.end(), kRuns[i], static_cast<uint8_t>(kRuns[i + 1]));
        run_ends_.push_back(static_cast<char32_t>(all.size()));
    }
    DSL_CHECK(all.size() == kCodePointLimit,
              "the table's runs of code points contain {} code points, expected {}", all.size(),
              static_cast<size_t>(kCodePointLimit));
    std::map<std::array<uint8_t, 256>, uint16_t> seen;
    for (size_t block = 0; block < stages_.size(); ++block) {
        std::array<uint8_t, 256> content;
        std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(block * 256), 256, content.begin());
        const auto [found, is_new] = seen.emplace(content, static_cast<uint16_t>(blocks_.size()));
        if (is_new) blocks_.push_back(content);
        stages_[block] = found->second;
    }
}

char32_t CodePoints::run_end(char32_t point) const {
    return *std::upper_bound(run_ends_.begin(), run_ends_.end(), point);
}

bool is_ascii(std::string_view text) {
    unsigned char any = 0;
    for (const char c : text) any = static_cast<unsigned char>(any | static_cast<unsigned char>(c));
    return any < 0x80;
}

size_t valid_utf8_prefix(std::string_view text) {
    size_t i = 0;
    while (i < text.size()) {
        while (i < text.size() && static_cast<unsigned char>(text[i]) < 0x80) ++i;
        if (i == text.size()) break;
        const int length = sequence_length(text, i);
        if (length < 0) return i;
        i += static_cast<size_t>(length);
    }
    return text.size();
}

std::string replace_invalid_utf8(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    while (true) {
        const size_t valid = valid_utf8_prefix(text);
        out += text.substr(0, valid);
        if (valid == text.size()) return out;
        append_utf8(out, kReplacement);
        text.remove_prefix(valid + static_cast<size_t>(-sequence_length(text, valid)));
    }
}

char32_t lower_point(char32_t point) {
    if (point < 0x80) return point >= 'A' && point <= 'Z' ? point + 32 : point;
    const LowerRun* run = std::lower_bound(
        std::begin(kLowerRuns), std::end(kLowerRuns), point,
        [](const LowerRun& candidate, char32_t wanted) { return candidate.last < wanted; });
    if (run == std::end(kLowerRuns) || point < run->first ||
        (point - run->first) % static_cast<char32_t>(run->step) != 0)
        return point;
    return static_cast<char32_t>(static_cast<int64_t>(point) + run->shift);
}

void append_lower(std::string& text, char32_t point) {
    if (point == kDottedI) {
        text += "i\u0307";
    } else {
        append_utf8(text, lower_point(point));
    }
}

}  // namespace dslaunch::text

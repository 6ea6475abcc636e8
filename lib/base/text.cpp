#include "base/text.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

namespace dslaunch {

std::string_view trim(std::string_view text) {
    constexpr std::string_view kSpace = " \t\r\n\f\v";
    const size_t first = text.find_first_not_of(kSpace);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    for (;;) {
        const size_t end = text.find(separator);
        parts.emplace_back(text.substr(0, end));
        if (end == std::string_view::npos) return parts;
        text.remove_prefix(end + 1);
    }
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
    std::string joined;
    for (size_t i = 0; i < parts.size(); ++i) {
        if (i > 0) joined += separator;
        joined += parts[i];
    }
    return joined;
}

namespace {

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
    Number value{};
    const char* end = text.data() + text.size();
    const auto [stop, status] = std::from_chars(text.data(), end, value);
    if (status != std::errc() || stop != end || text.empty()) return std::nullopt;
    return value;
}

}  // namespace

std::string lower(std::string_view text) {
    std::string result(text);
    for (char& c : result)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return result;
}

std::string hex_text(std::span<const std::byte> bytes) {
    std::string text;
    for (const std::byte byte : bytes)
        text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
    return text;
}

bool is_hex_text(std::string_view text, size_t digits) {
    return text.size() == digits &&
           text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string counted(int64_t count, std::string_view noun) {
    return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::optional<int64_t> parse_int(std::string_view text) {
    return parse_number<int64_t>(text);
}
std::optional<double> parse_double(std::string_view text) {
    return parse_number<double>(text);
}

size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
    for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
    for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
    for (size_t i = 1; i <= a.size(); ++i) {
        for (size_t j = 1; j <= b.size(); ++j) {
            cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1,
                                   cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
            const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
        }
    }
    return cost[a.size()][b.size()];
}

std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates) {
    std::optional<std::string> best;
    size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
    for (const std::string& candidate : candidates) {
        // Skips a candidate whose length alone makes its distance too large. This saves time if
        // WORD is very long.
        if (word.size() >= candidate.size() + best_distance) continue;
        const size_t distance = edit_distance(word, candidate);
        // Two short words differ by few letters even if they have nothing in common.
        if (2 * distance > std::max(word.size(), candidate.size())) continue;
        if (distance < best_distance) {
            best_distance = distance;
            best = candidate;
        }
    }
    return best;
}

bool fits_pattern(std::string_view pattern, std::string_view name) {
    size_t p = 0, n = 0;
    size_t star = pattern.npos, resume = 0;  // the last `*`, and the end of its match in NAME
    while (n < name.size()) {
        if (p < pattern.size() && pattern[p] == '*') {
            star = p++;
            resume = n;
        } else if (p < pattern.size() && pattern[p] == name[n]) {
            ++p;
            ++n;
        } else if (star != pattern.npos) {
            p = star + 1;
            n = ++resume;
        } else {
            return false;
        }
    }
    return pattern.substr(p).find_first_not_of('*') == pattern.npos;
}

size_t utf8_length(std::string_view text, size_t i) {
    const auto at = [&](size_t k) {
        return k < text.size() ? static_cast<unsigned char>(text[k]) : 0U;
    };
    const unsigned lead = at(i);
    if (lead < 0x80) return 1;
    const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4) return 0;
    for (size_t k = 1; k < length; ++k)
        if ((at(i + k) & 0xC0) != 0x80) return 0;
    const unsigned second = at(i + 1);
    const bool overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
    const bool beyond = (lead == 0xED && second >= 0xA0) || (lead == 0xF4 && second >= 0x90);
    return overlong || beyond ? 0 : length;
}

namespace {

// Returns true if LETTER is a C1 control character in UTF-8, which a terminal obeys like an escape
// sequence. Also returns true if LETTER is an invisible mark that changes the direction of the text
// after it or ends a line.
bool misleads(std::string_view letter) {
    if (letter.size() == 2)
        return letter[0] == '\xC2' && static_cast<unsigned char>(letter[1]) < 0xA0;
    if (letter.size() != 3 || letter[0] != '\xE2') return false;
    const auto second = static_cast<unsigned char>(letter[1]);
    const auto third = static_cast<unsigned char>(letter[2]);
    if (second == 0x81) return third >= 0xA6 && third <= 0xA9;
    return second == 0x80 && (third == 0x8E || third == 0x8F || (third >= 0xA8 && third <= 0xAE));
}

}  // namespace

std::string printable(std::string_view text) {
    std::string safe;
    safe.reserve(text.size());
    for (size_t i = 0; i < text.size();) {
        const size_t length = utf8_length(text, i);
        const std::string_view letter = text.substr(i, std::max<size_t>(1, length));
        i += letter.size();
        const auto byte = static_cast<unsigned char>(letter[0]);
        const bool control = (byte < 0x20 && byte != '\t') || byte == 0x7F;
        if (length > 0 && !control && !misleads(letter)) {
            safe += letter;
            continue;
        }
        for (const char c : letter)
            safe += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    }
    return safe;
}

std::string printable_lines(std::string_view text, size_t indent) {
    while (text.ends_with('\n')) text.remove_suffix(1);
    std::string result;
    for (const std::string& line : split(text, '\n')) {
        if (!result.empty()) result.append(1, '\n').append(indent, ' ');
        result += printable(line.ends_with('\r') ? line.substr(0, line.size() - 1) : line);
    }
    return result;
}

}  // namespace dslaunch

// The properties that the Python package `tokenizers` gives each code point: a category, a class of
// grapheme clusters and twelve flags. They were found by calling the package
// (make_code_point_runs.py), because its parts follow different versions of Unicode. Threads:
// const, any.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::text {

constexpr char32_t kCodePointLimit = 0x110000;
constexpr char32_t kReplacement = 0xFFFD;

// The classes of grapheme clusters, in the order of make_code_point_runs.py. kLVT includes LV.
enum class Cluster : uint8_t {
    kAny,
    kCr,
    kLf,
    kControl,
    kL,
    kV,
    kT,
    kLVT,
    kExtend,
    kJoiner,
    kSpacingMark,
    kPrepend,
    kConsonant,
    kPictographic,
    kRegional
};

// The flags of one code point. The 9 bits below them are its category (5 bits, in the order of
// make_code_point_runs.py) and its class of grapheme clusters (4 bits).
constexpr uint32_t kSpaceFlag = 1u << 9;           // White_Space
constexpr uint32_t kNumericFlag = 1u << 10;        // Rust's char::is_numeric
constexpr uint32_t kWordFlag = 1u << 11;           // \w of Rust's regex
constexpr uint32_t kPunctuationFlag = 1u << 12;    // matched by the pre-tokenizer Punctuation
constexpr uint32_t kDroppedFlag = 1u << 13;        // dropped by BertNormalizer's clean_text
constexpr uint32_t kCombiningFlag = 1u << 14;      // dropped by StripAccents
constexpr uint32_t kNonspacingFlag = 1u << 15;     // dropped by BertNormalizer's strip_accents
constexpr uint32_t kDecomposesFlag = 1u << 16;     // NFD changes it
constexpr uint32_t kCompatiblyFlag = 1u << 17;     // NFKD changes it
constexpr uint32_t kReordersFlag = 1u << 18;       // it has a combining class
constexpr uint32_t kLinkerFlag = 1u << 19;         // InCB=Linker
constexpr uint32_t kClusterExtendFlag = 1u << 20;  // InCB=Extend

// The table of all code points.
class CodePoints {
  public:
    // Returns the table. There is only one, which the first call builds.
    [[nodiscard]] static const CodePoints& table();

    // Returns POINT's class; code points with equal properties have the same class. REQUIRES: POINT
    // < kCodePointLimit.
    [[nodiscard]] uint8_t class_of(char32_t point) const {
        return blocks_[stages_[point >> 8]][point & 0xFF];
    }
    // Returns all properties of POINT: the flags above, its category and its class of clusters.
    // REQUIRES: POINT < kCodePointLimit.
    [[nodiscard]] uint32_t flags(char32_t point) const { return classes_[class_of(point)]; }
    // Return the number of classes, and the properties of all code points of class INDEX.
    [[nodiscard]] size_t classes_count() const { return classes_.size(); }
    [[nodiscard]] uint32_t class_flags(size_t index) const { return classes_[index]; }
    // Returns the first code point after POINT that may be in another class.
    [[nodiscard]] char32_t run_end(char32_t point) const;

  private:
    CodePoints();
    std::vector<uint32_t> classes_;
    std::vector<std::array<uint8_t, 256>> blocks_;
    std::array<uint16_t, kCodePointLimit / 256> stages_;
    std::vector<char32_t> run_ends_;  // ends of runs of one class, in order
};

// Returns the class of grapheme clusters in FLAGS, the result of CodePoints::flags.
[[nodiscard]] inline Cluster cluster_in(uint32_t flags) {
    return static_cast<Cluster>(flags >> 5 & 15);
}

// Returns the code point that begins at TEXT[I], and moves I past it. REQUIRES: valid UTF-8, I <
// its length.
[[nodiscard]] inline char32_t next_point(std::string_view text, size_t& i) {
    const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
    const char32_t first = byte(i);
    if (first < 0x80) return ++i, first;
    if (first < 0xE0) {
        const char32_t point = (first & 0x1F) << 6 | (byte(i + 1) & 0x3F);
        return i += 2, point;
    }
    if (first < 0xF0) {
        const char32_t point =
            (first & 0xF) << 12 | (byte(i + 1) & 0x3Fu) << 6 | (byte(i + 2) & 0x3Fu);
        return i += 3, point;
    }
    const char32_t point = (first & 7) << 18 | (byte(i + 1) & 0x3Fu) << 12 |
                           (byte(i + 2) & 0x3Fu) << 6 | (byte(i + 3) & 0x3Fu);
    return i += 4, point;
}

// Returns the code point that begins at TEXT[I]. REQUIRES: the same as next_point().
[[nodiscard]] inline char32_t point_at(std::string_view text, size_t i) {
    return next_point(text, i);
}
// Returns the number of bytes of the code point whose first byte is LEAD. REQUIRES: valid UTF-8.
[[nodiscard]] constexpr size_t point_bytes(char lead) {
    const auto byte = static_cast<unsigned char>(lead);
    if (byte < 0xC0) return 1;
    if (byte < 0xE0) return 2;
    return byte < 0xF0 ? 3 : 4;
}
// Returns the number of code points in TEXT. REQUIRES: valid UTF-8.
[[nodiscard]] inline int64_t count_points(std::string_view text) {
    int64_t count = 0;
    for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    return count;
}
// Returns the byte at which the code point with index POINTS begins, or the length of TEXT if there
// are not so many code points. REQUIRES: valid UTF-8.
[[nodiscard]] inline size_t point_offset(std::string_view text, int64_t points) {
    size_t at = 0;
    for (; points > 0 && at < text.size(); --points) at += point_bytes(text[at]);
    return at;
}

// Returns the beginning of the character that ends before I. REQUIRES: valid UTF-8, I > 0.
[[nodiscard]] inline size_t previous_begin(std::string_view text, size_t i) {
    do --i;
    while (i > 0 && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80);
    return i;
}

// Returns true if all bytes of TEXT are below 128.
[[nodiscard]] bool is_ascii(std::string_view text);
// Returns the place of the first byte that is not UTF-8, or the length of TEXT.
[[nodiscard]] size_t valid_utf8_prefix(std::string_view text);
// Returns TEXT with U+FFFD for each maximal part that is not UTF-8, as with Python's
// errors="replace".
[[nodiscard]] std::string replace_invalid_utf8(std::string_view text);
// Returns the lower case of POINT as a single code point. Only append_lower() writes the two code
// points for U+0130.
[[nodiscard]] char32_t lower_point(char32_t point);
// Appends the lower case of POINT, one or two code points, to TEXT.
void append_lower(std::string& text, char32_t point);

}  // namespace dslaunch::text

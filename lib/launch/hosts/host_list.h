// Short forms of numbered host names: te[1-4], te[01-16]. The hostfile, Slurm's node list and
// messages use this form. Pure; no threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::launch {

inline constexpr int kRangeHostsMax = 4096;  // hosts of one range

// The numbers from FIRST to LAST. FIRST was written with DIGITS digits, so smaller numbers are
// written with leading zeros.
struct NumberRange {
    int64_t first = 0;
    int64_t last = 0;
    size_t digits = 1;

    // Returns NUMBER with leading zeros up to DIGITS.
    [[nodiscard]] std::string write(int64_t number) const;
    // Returns the name PREFIX + number + SUFFIX for each number.
    [[nodiscard]] std::vector<std::string> names(std::string_view prefix,
                                                 std::string_view suffix) const;
};

// The reason why a text is not a range.
enum class RangeFault {
    kNone,
    kNoNumber,   // a number of 1 to 9 digits is missing
    kBackwards,  // LAST is less than FIRST
    kTooLong,    // over kRangeHostsMax numbers
};

// The result of read_range().
struct ReadRange {
    NumberRange range;
    RangeFault fault = RangeFault::kNone;
    bool is_single = false;  // one number, no `-`
    size_t end = 0;          // end of the range in the text, or the place of the fault
};

// Reads FIRST-LAST, or one number, at position AT of TEXT.
[[nodiscard]] ReadRange read_range(std::string_view text, size_t at);

// Returns a short form such as "te[1-3],gw". Neighbours in NAMES share a bracket if only their
// numbers differ, and these count up by 1. Keeps the order of NAMES.
[[nodiscard]] std::string fold_names(const std::vector<std::string>& names);

}  // namespace dslaunch::launch

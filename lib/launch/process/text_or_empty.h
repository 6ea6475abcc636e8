// Files of /proc and /sys, which may be missing or belong to somebody else.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"

namespace dslaunch::launch {

// The whole file at PATH; empty when it cannot be read or has more than BYTES_MAX.
[[nodiscard]] inline std::string text_or_empty(const std::string& path,
                                               size_t bytes_max = 4U << 20) {
    try {
        return read_file(path, bytes_max);
    } catch (const Error&) {
        return {};
    }
}

// The value of the first line "NAME : value" of TEXT; empty when there is none.
[[nodiscard]] inline std::string value_in(std::string_view text, std::string_view name) {
    for (const std::string& line : split(text, '\n')) {
        const size_t colon = line.find(':');
        if (colon != std::string::npos && trim(line.substr(0, colon)) == name)
            return std::string(trim(line.substr(colon + 1)));
    }
    return {};
}

}  // namespace dslaunch::launch

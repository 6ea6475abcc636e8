// Files of /proc and /sys, which may be missing or belong to somebody else.
#pragma once

#include <string>

#include "base/error.h"
#include "base/fd.h"

namespace dslaunch::launch {

// The whole file at PATH; empty when it cannot be read or has more than BYTES_MAX.
[[nodiscard]] inline std::string text_or_empty(const std::string& path, size_t bytes_max) {
    try {
        return read_file(path, bytes_max);
    } catch (const Error&) {
        return {};
    }
}

}  // namespace dslaunch::launch

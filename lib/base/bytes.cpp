#include "base/bytes.h"

#include <fmt/core.h>

namespace dslaunch {

std::string to_text(Bytes bytes) {
    const double value = static_cast<double>(bytes.value);
    if (bytes.value >= gib(1).value) return fmt::format("{:.2f} GiB", value / (1 << 30));
    if (bytes.value >= mib(1).value) return fmt::format("{:.1f} MiB", value / (1 << 20));
    if (bytes.value >= kib(1).value) return fmt::format("{:.1f} KiB", value / (1 << 10));
    return fmt::format("{} B", bytes.value);
}

}  // namespace dslaunch

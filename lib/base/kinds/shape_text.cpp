#include "base/kinds/shape_text.h"

#include <fmt/ranges.h>

namespace dslaunch {

std::string shape_text(std::span<const int64_t> sizes) {
    return fmt::format("[{}]", fmt::join(sizes, ", "));
}

}  // namespace dslaunch

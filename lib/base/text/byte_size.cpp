#include "base/text/byte_size.h"

#include <cctype>
#include <limits>

#include "base/text.h"

namespace dslaunch {

std::optional<int64_t> parse_byte_size(std::string_view text) {
    constexpr std::string_view kUnits = "KMGT";
    int64_t unit = 1;
    const size_t place =
        text.empty()
            ? std::string_view::npos
            : kUnits.find(static_cast<char>(std::toupper(static_cast<unsigned char>(text.back()))));
    if (place != std::string_view::npos) {
        unit = int64_t{1} << (10 * (place + 1));
        text.remove_suffix(1);
    }
    const auto number = parse_int(text);
    if (!number || *number < 0 || *number > std::numeric_limits<int64_t>::max() / unit)
        return std::nullopt;
    return *number * unit;
}

}  // namespace dslaunch

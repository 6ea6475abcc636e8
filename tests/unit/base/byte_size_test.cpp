#include "base/text/byte_size.h"

#include <utility>

#include "support/catch.h"

namespace dslaunch {

TEST_CASE("sizes are read with their units, and nothing else is") {
    const std::pair<const char*, std::optional<int64_t>> rows[] = {
        {"0", 0},
        {"37", 37},
        {"4K", 4096},
        {"4k", 4096},
        {"1M", 1'048'576},
        {"2G", 2'147'483'648},
        {"3T", 3'298'534'883'328},
        {"8388607T", 9'223'370'937'343'148'032},
        {"8388608T", std::nullopt},
        {"", std::nullopt},
        {"K", std::nullopt},
        {"-1", std::nullopt},
        {"1.5G", std::nullopt},
        {"1GB", std::nullopt},
        {" 1", std::nullopt},
    };
    for (const auto& [text, bytes] : rows) {
        INFO(text);
        CHECK(parse_byte_size(text) == bytes);
    }
}

}  // namespace dslaunch

// How flat buffers are cut into the shards of ZeRO stages 1 to 3: `dslaunch.shard` of a config.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace dslaunch {

enum class ShardBy : uint8_t {
    kFlat,   // every bucket into equal neighbours, wherever parameters begin
    kLayer,  // whole segments
    kGroup,  // the parameters of one module (weight and bias) together
    kRow,    // rows of every parameter, its first dimension
};

inline constexpr std::array<std::string_view, 4> kShardNames = {"flat", "layer", "group", "row"};

[[nodiscard]] constexpr std::string_view shard_name(ShardBy by) {
    return kShardNames[static_cast<size_t>(by)];
}

}  // namespace dslaunch

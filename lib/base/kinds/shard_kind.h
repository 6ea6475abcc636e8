// The rule that divides a bucket's elements among ranks at ZeRO stages 1 to 3: one enum for the
// config (`dslaunch.shard`) and for the plans that implement it. Threads: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace dslaunch {

// The pieces that are never divided between two ranks.
enum class ShardBy : uint8_t {
    kFlat,       // equal ranges of the bucket, wherever parameters begin
    kLayer,      // whole segments
    kGroup,      // the parameters of one module (weight and bias) together
    kRow,        // rows of each parameter, so that a shard is a slice of the first dimension
    kParameter,  // whole parameters
};

inline constexpr size_t kShardKinds = 5;

namespace detail {
inline constexpr std::array<std::string_view, kShardKinds> kShardByNames{"flat", "layer", "group",
                                                                         "row", "parameter"};
}  // namespace detail

// Returns the name that the config uses for KIND.
[[nodiscard]] constexpr std::string_view shard_by_name(ShardBy kind) {
    return detail::kShardByNames[static_cast<size_t>(kind)];
}

// Returns the kind with that exact name, or nothing.
[[nodiscard]] constexpr std::optional<ShardBy> shard_by_from_name(std::string_view name) {
    for (size_t i = 0; i < detail::kShardByNames.size(); ++i)
        if (detail::kShardByNames[i] == name) return static_cast<ShardBy>(i);
    return std::nullopt;
}

}  // namespace dslaunch

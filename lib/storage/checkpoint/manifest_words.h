// The words of manifest.json that its writer and its parser share. Pure.
#pragma once

#include <array>
#include <string_view>

namespace dslaunch::storage {

inline constexpr std::string_view kManifestName = "manifest.json";
// Is there once all files have been read and found whole; counts for the manifest it was made of.
inline constexpr std::string_view kVerifiedName = "verified";

// One name for each TensorKind.
inline constexpr std::array<std::string_view, 4> kTensorKindNames{"trained", "frozen", "buffer",
                                                                  "rank_buffer"};

// The texts before and behind the 32 digits of the last member: the file's end, byte for byte.
inline constexpr std::array<std::string_view, 2> kManifestEnd{",\"manifest_xxh3_128\":\"", "\"}\n"};

}  // namespace dslaunch::storage

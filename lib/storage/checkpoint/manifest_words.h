// The words of manifest.json that its writer and its parser share. Pure.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "storage/checkpoint/manifest.h"

namespace dslaunch::storage {

inline constexpr std::string_view kManifestName = "manifest.json";
// Is there once all files have been read and found whole; counts for the manifest it was made of.
inline constexpr std::string_view kVerifiedName = "verified";

// One name for each TensorKind.
inline constexpr std::array<std::string_view, 4> kTensorKindNames{"trained", "frozen", "buffer",
                                                                  "rank_buffer"};

// The texts before and behind the 32 digits of the last member: the file's end, byte for byte.
inline constexpr std::array<std::string_view, 2> kManifestEnd{",\"manifest_xxh3_128\":\"", "\"}\n"};

// 32 hexadecimal digits, the high half first.
[[nodiscard]] std::string hash_text(const Hash128& hash);

// The text that the mark of a verified checkpoint holds for its manifest's text.
[[nodiscard]] std::string verified_mark(std::string_view manifest);

}  // namespace dslaunch::storage

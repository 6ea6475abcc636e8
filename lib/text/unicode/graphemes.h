// The ends of grapheme clusters, by the extended rules of Unicode's annex 29. Threads: any.
#pragma once

#include <cstddef>
#include <string_view>

namespace dslaunch::text {

// Returns the end of the cluster that begins at TEXT[BEGIN]. REQUIRES: valid UTF-8, BEGIN < its
// length, and a cluster begins there.
[[nodiscard]] size_t grapheme_end(std::string_view text, size_t begin);

}  // namespace dslaunch::text

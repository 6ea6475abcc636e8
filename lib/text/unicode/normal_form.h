// The normal forms of Unicode as the Python package `tokenizers` has them: an old version of
// Unicode, so that characters it does not know stay as they are. Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::text {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Returns TEXT in FORM. PLACES, unless null, gets for each byte the place in TEXT of its character,
// or of the first of a composed one. REQUIRES: valid UTF-8.
[[nodiscard]] std::string to_normal_form(std::string_view text, NormalForm form,
                                         std::vector<uint32_t>* places = nullptr);

}  // namespace dslaunch::text

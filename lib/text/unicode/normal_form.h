// The normal forms of Unicode as the Python package `tokenizers` has them: an old version of
// Unicode, so that characters it does not know stay as they are. Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::text {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// TEXT in FORM. PLACES, unless null, gets of each byte of it where in TEXT the character begins
// that it stands for: of a composed one the first. REQUIRES: valid UTF-8.
[[nodiscard]] std::string to_normal_form(std::string_view text, NormalForm form,
                                         std::vector<uint32_t>* places = nullptr);

}  // namespace dslaunch::text

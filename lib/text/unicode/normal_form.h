// The normal forms of Unicode as in the Python package `tokenizers`. The package uses an old
// version of Unicode, so newer characters stay unchanged. Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::text {

// The four forms of annex 15.
enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Returns TEXT in FORM. If PLACES is not null, sets it to one place for each byte of the result:
// the byte of TEXT at which the original character begins. If several characters were composed to
// one, the place is the beginning of the first one. REQUIRES: valid UTF-8.
[[nodiscard]] std::string to_normal_form(std::string_view text, NormalForm form,
                                         std::vector<uint32_t>* places = nullptr);

}  // namespace dslaunch::text

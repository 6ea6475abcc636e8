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

// Returns TEXT in FORM. If PLACES is not null, it receives one place in TEXT for each byte of the
// result: where the original character begins, or the first of several characters that were
// composed. REQUIRES: valid UTF-8.
[[nodiscard]] std::string to_normal_form(std::string_view text, NormalForm form,
                                         std::vector<uint32_t>* places = nullptr);

}  // namespace dslaunch::text

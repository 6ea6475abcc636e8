// The normal forms of Unicode as the Python package `tokenizers` has them: an old version of
// Unicode, so that characters it does not know stay as they are. Threads: any.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch::tokens {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// TEXT in FORM. REQUIRES: valid UTF-8.
[[nodiscard]] std::string to_normal_form(std::string_view text, NormalForm form);

}  // namespace dslaunch::tokens

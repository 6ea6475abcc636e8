// The spellings of values that DeepSpeed accepts in addition to the schema's. in_one_form()
// (key_reader.h) rewrites them before a config is checked; the JSON Schema allows them. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::config {

// Returns true if DeepSpeed converts values in the top-level section NAME to the key's type: "true"
// to true, "2" to 2.
[[nodiscard]] bool is_spelled_section(std::string_view name);

// Returns true if the words of the key PATH may be in upper and lower case.
[[nodiscard]] bool takes_any_case(std::string_view path);

// Returns further words for the key PATH, each with the same meaning as a word that the schema
// allows: "torch.bfloat16".
[[nodiscard]] std::vector<std::string> other_words(std::string_view path);

}  // namespace dslaunch::config

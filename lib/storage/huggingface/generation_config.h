// The tokens that end a text of a Hugging Face folder's model: those of generation_config.json, or
// of config.json where there is no such file. Data path: folder -> [here] -> generate, serve. Pure
// but for reading the two files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::storage {

// eos_token_id of TEXT, the JSON at PATH: one token, several, or none. Throws Error{kInput} naming
// PATH and the field for anything else.
[[nodiscard]] std::vector<int32_t> parse_end_tokens(const std::string& path, std::string_view text);

// Those of FOLDER. Throws as above. REQUIRES: FOLDER has a config.json.
[[nodiscard]] std::vector<int32_t> end_tokens_of(const std::string& folder);

}  // namespace dslaunch::storage

#include "storage/huggingface/generation_config.h"

#include <fmt/core.h>

#include <filesystem>

#include "base/text/json_place.h"
#include "base/text_bytes.h"
#include "storage/files/mapped_file.h"

namespace dslaunch::storage {

std::vector<int32_t> parse_end_tokens(const std::string& path, std::string_view text) {
    constexpr const char* kKey = "eos_token_id";
    constexpr int64_t kTokenMax = INT32_MAX;
    const JsonPlace::Json json = JsonPlace::parse(path, text);
    const JsonPlace config(path, json);
    std::vector<int32_t> tokens;
    const auto add = [&](const JsonPlace& place) {
        const int64_t token = place.integer();
        if (token < 0 || token > kTokenMax) place.refuse("is no token");
        tokens.push_back(static_cast<int32_t>(token));
    };
    if (!config.has(kKey)) return tokens;
    if (json.at(kKey).is_array()) {
        config.at(kKey).for_elements(add);
    } else {
        add(config.at(kKey));
    }
    return tokens;
}

std::vector<int32_t> end_tokens_of(const std::string& folder) {
    for (const char* name : {"generation_config.json", "config.json"}) {
        const std::string path = fmt::format("{}/{}", folder, name);
        std::error_code unreadable;
        if (!std::filesystem::exists(path, unreadable)) continue;
        const MappedFile file(path);
        std::vector<int32_t> tokens = parse_end_tokens(path, text_in(file.bytes()));
        if (!tokens.empty()) return tokens;
    }
    return {};
}

}  // namespace dslaunch::storage

#include "config/resolve/lora_option.h"

#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/text/json.h"

namespace dslaunch::config {

namespace {

bool is_list(const std::string& key) {
    return key == "targets" || key == "modules_to_save";
}

}  // namespace

std::vector<std::string> lora_overrides(const std::string& spec) {
    std::vector<std::pair<std::string, std::vector<std::string>>> keys;
    for (const std::string& piece : split(spec, ',')) {
        const size_t equals = piece.find('=');
        if (equals != std::string::npos && equals > 0) {
            keys.emplace_back(piece.substr(0, equals), std::vector{piece.substr(equals + 1)});
        } else if (!piece.empty() && !keys.empty() && is_list(keys.back().first)) {
            keys.back().second.push_back(piece);
        } else {
            fail(ExitCode::kUsage,
                 "`{}` is no KEY=VALUE; write r=16,alpha=32,targets=*.q_proj,*.v_proj",
                 printable(piece));
        }
    }
    std::vector<std::string> overrides;
    for (const auto& [key, values] : keys) {
        std::string text = values.front();
        if (is_list(key)) {
            JsonWriter json;
            json.begin_array();
            for (const std::string& value : values) json.value(value);
            json.end_array();
            text = json.text();
        }
        overrides.push_back("dslaunch.lora." + key + "=" + text);
    }
    return overrides;
}

}  // namespace dslaunch::config

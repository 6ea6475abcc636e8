#include "config/resolve/option_overrides.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/text/json.h"

namespace dslaunch::config {

namespace {

constexpr const char* kLibraries = "dslaunch.op_libraries";

std::string list_text(const std::vector<std::string>& values) {
    JsonWriter json;
    json.begin_array();
    for (const std::string& value : values) json.value(value);
    json.end_array();
    return json.text();
}

// Returns the key of dslaunch.lora for KEY, a name that PEFT and its users write.
std::string own_key(const std::string& key) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kOthers = {
        {{"rank", "r"},
         {"lora_r", "r"},
         {"lora_rank", "r"},
         {"lora_alpha", "alpha"},
         {"lora_dropout", "dropout"},
         {"target", "targets"},
         {"target_modules", "targets"},
         {"lora_target_modules", "targets"},
         {"use_rslora", "rslora"}}};
    const auto other = std::ranges::find(kOthers, key, [](const auto& row) { return row.first; });
    return other == kOthers.end() ? key : std::string(other->second);
}

bool is_list(const std::string& key) {
    return key == "targets" || key == "modules_to_save";
}

// Checks settings of PEFT for features that dslaunch does not support: biases and DoRA. Returns
// true if KEY is such a setting and VALUE turns it off. Throws if VALUE turns it on.
bool leaves_feature_out(const std::string& key, const std::string& value) {
    if (key != "bias" && key != "lora_bias" && key != "use_dora" && key != "dora") return false;
    if (lower(value) == "none" || lower(value) == "false") return true;
    fail(ExitCode::kUsage, "`{}={}`: bias and DoRA are not supported: leave it out", key,
         printable(value));
}

// Refuses names in the list KEY that contain brackets, quotes or blanks. Such a list was probably
// written in the form of Python or YAML, ["q_proj", "v_proj"].
void require_plain_names(const std::string& key, const std::vector<std::string>& names) {
    constexpr std::string_view kNone = "[]()'\" ";
    std::vector<std::string> plain;
    bool is_plain = true;
    for (const std::string& name : names) {
        is_plain = is_plain && name.find_first_of(kNone) == std::string::npos;
        std::string word;
        for (const char c : name + ",") {
            if (kNone.find(c) == std::string_view::npos && c != ',') {
                word += c;
            } else if (!word.empty()) {
                plain.push_back(std::exchange(word, {}));
            }
        }
    }
    if (is_plain) return;
    fail(ExitCode::kUsage,
         "`{}={}`: separate the names with commas only, without brackets, quotes or blanks: {}={}",
         key, printable(join(names, ",")), key, printable(join(plain, ",")));
}

}  // namespace

std::vector<std::string> lora_overrides(const std::string& spec) {
    using Setting = std::pair<std::string, std::vector<std::string>>;
    std::vector<Setting> keys;
    for (const char* quote : {"\u201c", "\u201d", "\u201e", "\u2018", "\u2019"})
        if (spec.find(quote) != std::string::npos)
            fail(ExitCode::kUsage,
                 "`{}`: {} is a typographic quote, probably copied from an editor or web page: "
                 "write '",
                 printable(spec), quote);
    for (const std::string& written : split(spec, ',')) {
        const size_t sign = written.find('=');
        // Blanks around a name, its `=` and its value mean nothing.
        const std::string piece =
            sign == std::string::npos
                ? std::string(trim(written))
                : fmt::format("{}={}", trim(std::string_view(written).substr(0, sign)),
                              trim(std::string_view(written).substr(sign + 1)));
        const size_t equals = piece.find('=');
        if (piece.find(';') != std::string::npos)
            fail(ExitCode::kUsage,
                 "`{}`: separate settings with commas, not semicolons: r=16,alpha=32",
                 printable(piece));
        if (equals != std::string::npos && equals > 0) {
            if (leaves_feature_out(piece.substr(0, equals), piece.substr(equals + 1))) continue;
            if (std::ranges::find(keys, own_key(piece.substr(0, equals)), &Setting::first) !=
                keys.end())
                fail(ExitCode::kUsage, "`{}` is given twice", piece.substr(0, equals));
            keys.emplace_back(own_key(piece.substr(0, equals)),
                              std::vector{piece.substr(equals + 1)});
        } else if (!piece.empty() && !keys.empty() && is_list(keys.back().first)) {
            keys.back().second.push_back(piece);
        } else {
            fail(
                ExitCode::kUsage,
                "`{}` is not KEY=VALUE; write 'r=16,alpha=32,targets=*.q_proj,*.v_proj'{}",
                printable(piece),
                piece.find('/') == std::string::npos
                    ? ""
                    : fmt::format("; to start from this adapter, write init={}", printable(piece)));
        }
    }
    std::vector<std::string> overrides;
    if (keys.empty()) overrides.emplace_back("dslaunch.lora={}");
    for (const auto& [key, values] : keys) {
        std::string text = values.front();
        if (is_list(key)) {
            require_plain_names(key, values);
            text = list_text(values);
        }
        overrides.push_back("dslaunch.lora." + key + "=" + text);
    }
    return overrides;
}

std::string op_libraries_override(const std::vector<std::string>& files) {
    return fmt::format("{}={}", kLibraries, list_text(files));
}

void require_named_libraries(const Resolved& resolved, bool is_named) {
    if (is_named || resolved.config.op_libraries.empty()) return;
    for (const ResolvedValue& value : resolved.values) {
        if (value.path != kLibraries || value.origin.starts_with("--")) continue;
        fail(ExitCode::kConfig,
             "{}: {} names {}, which would be loaded as code, and this config came with the model; "
             "if you trust the library, give it with --op-library FILE, or the config with "
             "--config FILE",
             value.origin, kLibraries, printable(resolved.config.op_libraries.front()));
    }
}

}  // namespace dslaunch::config

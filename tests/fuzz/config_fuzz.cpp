// libFuzzer entry: reads any bytes as a config, as YAML and as the JSON that DeepSpeed reads.
// Nothing may crash, hang or throw. A config that resolves is printed as an equal config. Errors in
// JSON name a place that exists. Strict JSON means the same to another reader. Comments around a
// text, and printing its values, do not change its meaning. Build: clang++
// -fsanitize=fuzzer,address,undefined with dsl_config; not part of the normal build.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/check.h"
#include "config/resolve/resolve.h"
#include "fuzz/error_checks.h"

using namespace dslaunch;
using namespace dslaunch::config;
using nlohmann::json;

namespace {

void check_resolved(const TrainConfig& config) {
    ResolveOptions options;
    options.world_size = 2;
    Resolved first = resolve(config, options);
    if (!first.problems.empty()) return;
    Resolved second = resolve(parse_config(config_text(first), "printed"), options);
    DSL_CHECK(second.problems.empty(), "a printed config has problems: {}",
              second.problems.front().text());
    DSL_CHECK(first.config == second.config, "a printed config resolves differently");
}

bool same(const Value& ours, const json& other) {
    using Kind = Value::Kind;
    if (other.is_object()) {
        if (!ours.is(Kind::kObject) || ours.keys.size() != other.size()) return false;
        for (size_t i = 0; i < ours.keys.size(); ++i)
            if (!other.contains(ours.keys[i]) || !same(ours.items[i], other[ours.keys[i]]))
                return false;
        return true;
    }
    if (other.is_array()) {
        if (!ours.is(Kind::kList) || ours.items.size() != other.size()) return false;
        for (size_t i = 0; i < ours.items.size(); ++i)
            if (!same(ours.items[i], other[i])) return false;
        return true;
    }
    if (other.is_string()) return ours.is(Kind::kString) && ours.text == other.get<std::string>();
    if (other.is_boolean()) return ours.is(Kind::kBool) && ours.boolean == other.get<bool>();
    if (other.is_null()) return ours.is(Kind::kNull);
    // A number that no double can represent, such as 1e-400, stays a text in our reader and becomes
    // 0 in the other one.
    return ours.is(Kind::kString) || ours.as_double() == other.get<double>();
}

// Returns true if a limit was exceeded or a key was given twice: our reader refuses this, the other
// one does not.
bool beyond_json(const TrainConfig& read) {
    for (const Problem& problem : read.problems)
        for (const char* words : {"nested deeper", "keys in one section", "duplicate key"})
            if (problem.message.find(words) != std::string::npos) return true;
    return false;
}

void check_json(std::string_view text) {
    const TrainConfig read = parse_config(text, "f.json");
    check_resolved(read);
    std::string errors;
    for (const Problem& problem : read.problems) errors += problem.text() + "\n";
    if (!errors.empty()) {
        fuzz::check_shown(errors);
        fuzz::check_places(errors, "f.json", text);
    }
    const json strict = json::parse(text, nullptr, false);
    if (strict.is_object() && text.size() <= kConfigBytesMax && !beyond_json(read)) {
        DSL_CHECK(read.problems.empty(), "JSON is refused: {}", errors);
        DSL_CHECK(same(read.root, strict), "JSON is read otherwise: {}", to_json(read.root));
    }
    if (!read.problems.empty()) return;
    for (const std::string& form :
         {to_json(read.root), to_json(read.root, 0), fmt::format("#,\n{}\n// \"", text)}) {
        if (form.size() > kConfigBytesMax || text.starts_with("\xEF\xBB\xBF")) continue;
        const TrainConfig again = parse_config(form, "again.json");
        DSL_CHECK(again.problems.empty(), "another form is refused: {}",
                  again.problems.front().text());
        DSL_CHECK(same_value(read.root, again.root), "another form means something else");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t bytes_numel) {
    std::string_view text(reinterpret_cast<const char*>(bytes), bytes_numel);
    check_resolved(parse_config(text, "fuzz"));
    check_json(text);
    return 0;
}

#include "config/resolve/op_libraries.h"

#include "base/error.h"
#include "base/text.h"
#include "base/text/json.h"

namespace dslaunch::config {

namespace {

constexpr const char* kKey = "dslaunch.op_libraries";

}  // namespace

std::string op_libraries_override(const std::vector<std::string>& files) {
    JsonWriter json;
    json.begin_array();
    for (const std::string& file : files) json.value(file);
    json.end_array();
    return std::string(kKey) + "=" + json.text();
}

void require_named_libraries(const Resolved& resolved, bool is_named) {
    if (is_named || resolved.config.op_libraries.empty()) return;
    for (const ResolvedValue& value : resolved.values) {
        if (value.path != kKey || value.origin.starts_with("--")) continue;
        fail(ExitCode::kConfig,
             "{}: {} names {}, which would run as a program, and this config came with the model; "
             "if you trust it, say so with --op-library FILE or --config FILE",
             value.origin, kKey, printable(resolved.config.op_libraries.front()));
    }
}

}  // namespace dslaunch::config

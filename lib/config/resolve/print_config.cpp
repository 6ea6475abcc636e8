// Prints a resolved config: as a config again, as a table, as JSON.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/json.h"
#include "config/resolve/resolve.h"
#include "config/schema/schema.h"

namespace dslaunch::config {

namespace {

// The smallest width of the column of origins. If less room is left, each origin is printed on a
// separate line.
constexpr size_t kOriginColumns = 24;
constexpr size_t kIndent = 4;

}  // namespace

void require_valid(const Resolved& resolved) {
    if (resolved.problems.empty()) return;
    std::string text = counted(std::ssize(resolved.problems), "problem") + " in the config:";
    for (const Problem& problem : resolved.problems) text += fmt::format("\n{}", problem.text());
    throw Error(ExitCode::kConfig, text);
}

std::string config_text(const Resolved& resolved) {
    Value root;
    root.kind = Value::Kind::kObject;
    for (const ResolvedValue& entry : resolved.values) {
        if (entry.unsaid || entry.value.is(Value::Kind::kNull)) continue;
        if (!set_path(root, entry.path, entry.value))
            fail(ExitCode::kInternal, "{} cannot be printed", entry.path);
    }
    return to_json(root, 0) + "\n";
}

std::string resolved_table(const Resolved& resolved, size_t width) {
    size_t path_width = 0, value_width = 0;
    for (const ResolvedValue& entry : resolved.values) {
        path_width = std::max(path_width, entry.path.size());
        value_width = std::max(value_width, std::min<size_t>(to_json(entry.value).size(), 30));
    }
    const size_t begin = path_width + value_width + 4;
    const size_t limit = width > 0 ? width : std::string::npos;
    const bool narrow = limit < begin + kOriginColumns;
    std::string table;
    for (const ResolvedValue& entry : resolved.values) {
        const std::string value = printable(to_json(entry.value));
        const std::string origin = printable(entry.origin);
        if (narrow) {
            table += fmt::format("{}  {}\n{:{}}{}\n", entry.path, value, "", kIndent,
                                 wrapped(origin, {limit, kIndent, kIndent}));
            continue;
        }
        table += fmt::format("{:<{}}  {:<{}}  {}\n", entry.path, path_width, value, value_width,
                             wrapped(origin, {limit, begin, begin}));
    }
    const auto add = [&](const char* kind, const std::string& text) {
        table += wrapped(kind + text, {limit, 0, kIndent}) + "\n";
    };
    for (const std::string& warning : resolved.warnings) add("warning: ", warning);
    if (!resolved.chosen.empty()) add("note: ", resolved.chosen);
    for (const std::string& note : resolved.notes) add("note: ", note);
    return table;
}

std::string differences_text(const Resolved& resolved) {
    std::vector<std::string> said;
    for (const ResolvedValue& entry : resolved.values) {
        const bool is_said = entry.origin != "default" && !entry.origin.starts_with("derived");
        if (is_said && !same_value(entry.value, default_value(*find_key(entry.path))))
            said.push_back(fmt::format("{} {}", entry.path, printable(to_json(entry.value))));
    }
    return join(said, ", ");
}

std::string resolved_json(const Resolved& resolved) {
    JsonWriter json;
    json.begin_object().field("ok", resolved.problems.empty()).key("values").begin_array();
    for (const ResolvedValue& entry : resolved.values) {
        json.begin_object().field("path", entry.path).key("value").raw(to_json(entry.value));
        json.field("origin", entry.origin).end_object();
    }
    json.end_array().key("notes").begin_array();
    for (const std::string& note : resolved.notes) json.value(note);
    json.end_array().key("warnings").begin_array();
    for (const std::string& warning : resolved.warnings) json.value(warning);
    json.end_array().field("chosen", resolved.chosen).key("errors").begin_array();
    for (const Problem& problem : resolved.problems) {
        json.begin_object().field("path", problem.path).field("message", problem.message);
        json.field("origin", problem.origin).end_object();
    }
    json.end_array().end_object();
    return json.text() + "\n";
}

std::string other_value_text(const Resolved& resolved, std::string_view path,
                             std::string_view value) {
    const auto found = std::ranges::find(resolved.values, path, &ResolvedValue::path);
    const std::string origin = found == resolved.values.end() ? "" : found->origin;
    const std::string set = fmt::format("--set {}={}", path, value);
    if (origin == "--set") return set + " in place of the given value";
    return origin.starts_with("--") ? fmt::format("leaving {} out", origin) : set;
}

}  // namespace dslaunch::config

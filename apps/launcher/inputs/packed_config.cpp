#include "launcher/inputs/packed_config.h"

#include "base/error.h"
#include "base/text.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <set>
#include <vector>

namespace dslaunch::launcher {
namespace {

using nlohmann::ordered_json;

// The parser silently keeps the last of repeated keys; here a repeated key is an error.
ordered_json parse_config(const std::string& text, const std::string& origin) {
    std::vector<std::set<std::string>> keys_of_open_objects;
    const auto watch = [&](int, ordered_json::parse_event_t event, ordered_json& parsed) {
        if (event == ordered_json::parse_event_t::object_start) keys_of_open_objects.emplace_back();
        if (event == ordered_json::parse_event_t::object_end) keys_of_open_objects.pop_back();
        if (event == ordered_json::parse_event_t::key &&
            !keys_of_open_objects.back().insert(parsed.get<std::string>()).second)
            fail(ExitCode::kConfig, "{}: key \"{}\" stands twice in one object", origin,
                 printable(parsed.get<std::string>()));
        return true;
    };
    try {
        return ordered_json::parse(text, watch);
    } catch (const ordered_json::parse_error& error) {
        fail(ExitCode::kConfig, "{}: not JSON: {}", origin, printable(error.what()));
    }
}

ordered_json& section(ordered_json& parent, const char* name, const std::string& where) {
    ordered_json& child = parent[name];
    if (child.is_null()) child = ordered_json::object();
    if (!child.is_object()) fail(ExitCode::kConfig, "{}: must be an object", where);
    return child;
}

}  // namespace

std::string relative_to_archive(const std::string& path, const std::string& archive_path) {
    namespace fs = std::filesystem;
    if (fs::path(path).is_absolute()) return path;
    // Folders are resolved, for ".." out of a linked folder goes to its real parent; the file
    // itself may be a link and stays one.
    const fs::path file = fs::absolute(path);
    const fs::path folder = fs::weakly_canonical(fs::absolute(archive_path).parent_path());
    return (fs::weakly_canonical(file.parent_path()) / file.filename())
        .lexically_relative(folder)
        .string();
}

std::string with_data(const std::string& text, const std::string& origin,
                      const DataReferences& references) {
    ordered_json config = parse_config(text, origin);
    if (!config.is_object()) fail(ExitCode::kConfig, "{}: must be a JSON object", origin);
    if (!references.train.empty() || !references.eval.empty()) {
        ordered_json& data = section(section(config, "dslaunch", origin + ": dslaunch"), "data",
                                     origin + ": dslaunch.data");
        if (!references.train.empty()) data["train"] = references.train;
        if (!references.eval.empty()) data["eval"] = references.eval;
    }
    return config.dump(2) + "\n";
}

}  // namespace dslaunch::launcher

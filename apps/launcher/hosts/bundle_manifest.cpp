#include "launcher/hosts/bundle_manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "base/text/json.h"

namespace dslaunch::launcher {
namespace {

constexpr std::string_view kFormat = "dslaunch-bundle-1";

// Returns true for the name of a shared library, as the dynamic linker expects it: libx.so,
// libx.so.1, ld-linux.so.2.
bool is_library_name(std::string_view name) {
    const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '.' || c == '_' || c == '-' || c == '+';
    });
    const size_t at = name.find(".so");
    return plain && at != std::string_view::npos && at > 0 && name.front() != '.' &&
           (at + 3 == name.size() || name[at + 3] == '.');
}

bool is_user_path(std::string_view path) {
    if (path.starts_with('.') || path.find('\0') != std::string_view::npos) return false;
    for (size_t at = 0; at <= path.size();) {
        const size_t end = std::min(path.find('/', at), path.size());
        const std::string_view part = path.substr(at, end - at);
        if (part.empty() || part == "." || part == "..") return false;
        at = end + 1;
    }
    return true;
}

// Returns VALUE if it is written as an integer, else -1. A number like 1e300 does not fit in an
// int64_t.
int64_t whole_number(const nlohmann::json& value) {
    return value.is_number_integer() ? value.get<int64_t>() : -1;
}

BundleEntry entry_of(const nlohmann::json& file, const std::string& path) {
    BundleEntry entry{file.at("name"), whole_number(file.at("bytes")),
                      whole_number(file.at("mode")), file.at("sha256")};
    check_bundle_name(entry.name, path);
    if (entry.bytes < 0 || (entry.mode != 0755 && entry.mode != 0644)) {
        fail(ExitCode::kInput,
             "{}: the file {} in this bundle is damaged: it gives `{}` a bad size or mode", path,
             kBundleManifest, printable(entry.name));
    }
    return entry;
}

}  // namespace

void check_bundle_name(const std::string& name, const std::string& path) {
    constexpr std::string_view kLibraries = "lib/dslaunch/", kFiles = "files/";
    const std::string_view text = name;
    const bool is_ours =
        name == "bin/dslaunch" || name == "bin/dsworker" || name == "bin/libdsl_cuda.so" ||
        (text.starts_with(kLibraries) && is_library_name(text.substr(kLibraries.size()))) ||
        (text.starts_with(kFiles) && is_user_path(text.substr(kFiles.size())));
    if (is_ours) return;
    fail(ExitCode::kInput,
         "{}: a bundle cannot contain `{}`: it may contain only dslaunch's programs in bin/, "
         "libraries in lib/dslaunch/, and your files in files/, where the first name must not "
         "begin with a dot",
         path, printable(name));
}

std::string bundle_manifest_text(const std::vector<BundleEntry>& entries) {
    JsonWriter json;
    json.begin_object().field("format", kFormat).field("version", DSL_VERSION);
    json.key("files").begin_array();
    for (const BundleEntry& entry : entries) {
        json.begin_object().field("name", entry.name).field("bytes", entry.bytes);
        json.field("mode", entry.mode).field("sha256", entry.sha256).end_object();
    }
    json.end_array().end_object();
    return json.text() + "\n";
}

std::map<std::string, BundleEntry> parse_bundle_manifest(const std::string& text,
                                                         const std::string& path) {
    std::map<std::string, BundleEntry> entries;
    try {
        const auto json = nlohmann::json::parse(text);
        if (json.at("format") != kFormat) fail(ExitCode::kInput, "{}: another format", path);
        for (const auto& file : json.at("files")) {
            const BundleEntry entry = entry_of(file, path);
            if (!entries.emplace(entry.name, entry).second) {
                fail(ExitCode::kInput, "{}: `{}` occurs twice in its {}", path,
                     printable(entry.name), kBundleManifest);
            }
        }
    } catch (const nlohmann::json::exception& error) {
        fail(ExitCode::kInput, "{}: its {} is damaged: {}", path, kBundleManifest,
             printable(error.what()));
    }
    return entries;
}

}  // namespace dslaunch::launcher

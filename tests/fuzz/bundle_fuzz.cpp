// libFuzzer entry: the first byte says whether the rest is the manifest of a bundle or the name of
// a file in a bundle. Both are refused, or name only files that an independent check allows. A
// manifest is the same after it is written and read again.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "fuzz/error_checks.h"
#include "launcher/hosts/bundle_archive.h"

namespace {

using namespace dslaunch;
using namespace dslaunch::launcher;

// Returns true if NAME, as text, is a file that stays below one of the three folders, and is not
// hidden.
bool may_be_unpacked(const std::string& name) {
    const std::filesystem::path below = "/x/" + name;
    if (below.lexically_normal() != below || name.ends_with('/')) return false;
    if (name.find('\0') != std::string::npos || name.find("//") != std::string::npos) return false;
    const std::vector<std::string> parts = split(name, '/');
    if (parts.size() < 2 || std::ranges::count(parts, "..") + std::ranges::count(parts, ".") > 0)
        return false;
    if (parts[0] == "files") return parts[1][0] != '.';
    if (parts[0] == "bin")
        return parts.size() == 2 &&
               (parts[1] == "dslaunch" || parts[1] == "dsworker" || parts[1] == "libdsl_cuda.so");
    const size_t suffix = parts.back().find(".so");
    return parts[0] == "lib" && parts.size() == 3 && parts[1] == "dslaunch" &&
           suffix != std::string::npos && parts[2][0] != '.';
}

bool is_allowed(const std::string& name) {
    try {
        check_bundle_name(name, "fuzz");
    } catch (const Error& error) {
        DSL_CHECK(error.code() == ExitCode::kInput, "a bad name is bad input");
        fuzz::check_shown(error.what());
        return false;
    }
    return true;
}

void try_name(const std::string& name) {
    const bool allowed = is_allowed(name);
    const bool is_library = name.starts_with("lib/");  // the letters of library names have stricter
                                                       // rules
    DSL_CHECK(!allowed || may_be_unpacked(name), "`{}` is allowed", printable(name));
    DSL_CHECK(allowed || is_library || !may_be_unpacked(name), "`{}` is refused", printable(name));
}

void try_manifest(const std::string& text) {
    const auto entries = parse_bundle_manifest(text, "fuzz");
    std::vector<BundleEntry> list;
    for (const auto& [name, entry] : entries) {
        DSL_CHECK(entry.name == name && may_be_unpacked(name), "`{}`", printable(name));
        DSL_CHECK(entry.bytes >= 0 && (entry.mode == 0755 || entry.mode == 0644), "its facts");
        list.push_back(entry);
    }
    DSL_CHECK(parse_bundle_manifest(bundle_manifest_text(list), "fuzz") == entries, "read back");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    if (size_bytes == 0) return 0;
    const std::string text(reinterpret_cast<const char*>(data) + 1, size_bytes - 1);
    if (data[0] % 2 == 1) {
        try_name(text);
        return 0;
    }
    try {
        try_manifest(text);
    } catch (const Error& error) {
        DSL_CHECK(error.code() == ExitCode::kInput, "a bad manifest is bad input");
        fuzz::check_shown(error.what());
    }
    return 0;
}

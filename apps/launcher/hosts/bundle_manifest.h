// What a bundle says of itself: manifest.json, its first entry, has name, size, mode and SHA-256 of
// every other entry, and only names that a bundle may have. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dslaunch::launcher {

inline constexpr const char* kBundleManifest = "manifest.json";

struct BundleEntry {
    std::string name;
    int64_t bytes = 0;
    int64_t mode = 0;  // 0755 or 0644
    std::string sha256;

    bool operator==(const BundleEntry&) const = default;
};

// Throws Error{kInput} that begins with PATH unless NAME is bin/dslaunch, bin/dsworker,
// bin/libdsl_cuda.so, lib/dslaunch/LIBRARY or files/BELOW, a relative path without `.` and `..`
// whose first component is not hidden: below the folder that --to names, .ssh or .bashrc would be
// more than a file.
void check_bundle_name(const std::string& name, const std::string& path);

[[nodiscard]] std::string bundle_manifest_text(const std::vector<BundleEntry>& entries);
// Returns the entries by their names. Throws Error{kInput} that begins with PATH for what is no
// manifest, a name that check_bundle_name() refuses, and one that stands there twice.
[[nodiscard]] std::map<std::string, BundleEntry> parse_bundle_manifest(const std::string& text,
                                                                       const std::string& path);

}  // namespace dslaunch::launcher

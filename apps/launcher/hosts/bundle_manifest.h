// The first entry of a bundle, manifest.json, which describes every other entry. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dslaunch::launcher {

inline constexpr const char* kBundleManifest = "manifest.json";

// A file in a bundle, as the manifest describes it.
struct BundleEntry {
    std::string name;
    int64_t bytes = 0;
    int64_t mode = 0;  // 0755 or 0644
    std::string sha256;

    bool operator==(const BundleEntry&) const = default;
};

// Checks that NAME is allowed in a bundle: bin/dslaunch, bin/dsworker, bin/libdsl_cuda.so,
// lib/dslaunch/LIBRARY or files/BELOW. BELOW is a relative path without `.` and `..`. Its first
// component must not be hidden: a bundle with .ssh or .bashrc would change how the user's account
// works if --to names a home folder. Throws Error{kInput}, with a message that begins with PATH.
void check_bundle_name(const std::string& name, const std::string& path);

// Returns the contents of manifest.json for ENTRIES.
[[nodiscard]] std::string bundle_manifest_text(const std::vector<BundleEntry>& entries);
// Returns the entries by name. Throws Error{kInput}, with a message that begins with PATH, for text
// that is not a manifest, for a name that check_bundle_name() refuses, and for a name that occurs
// twice.
[[nodiscard]] std::map<std::string, BundleEntry> parse_bundle_manifest(const std::string& text,
                                                                       const std::string& path);

}  // namespace dslaunch::launcher

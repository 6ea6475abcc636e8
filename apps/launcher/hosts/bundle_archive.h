// A bundle: an installation of dslaunch, and files of the user, in one .tar.zst. The first entry,
// manifest.json, describes every other entry. Equal files make equal bundles.
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
// Returns the entries by their names. Throws Error{kInput} that begins with PATH for text that is
// not a manifest, a name that check_bundle_name() refuses, and a name that stands there twice.
[[nodiscard]] std::map<std::string, BundleEntry> parse_bundle_manifest(const std::string& text,
                                                                       const std::string& path);

struct BundleFile {
    std::string local_path;
    std::string name;  // in the bundle: bin/…, lib/dslaunch/…, files/…
};

// Writes PATH whole or not at all and returns its size in bytes. Throws Error{kInput}: a file
// cannot be read, changes meanwhile, or has a name that is too long or not a bundle's; kDisk.
int64_t write_bundle(const std::string& path, std::vector<BundleFile> files);

// Unpacks PATH into FOLDER, which must be empty and not used by others, and returns the entries.
// Throws Error{kInput} unless PATH is a bundle whose files match its manifest: for damage, a
// cut-off end, links, files that the manifest does not name, and, before anything is unpacked, for
// names that check_bundle_name() refuses; kDisk.
[[nodiscard]] std::vector<BundleEntry> unpack_bundle(const std::string& path,
                                                     const std::string& folder);

}  // namespace dslaunch::launcher

// A bundle: an installation of dslaunch, and files of the user, in one .tar.zst. The first entry,
// manifest.json, describes every other entry. Equal files make equal bundles.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/hosts/bundle_manifest.h"

namespace dslaunch::launcher {

struct BundleFile {
    std::string local_path;
    std::string name;  // in the bundle: bin/…, lib/dslaunch/…, files/…
};

// Writes PATH whole or not at all and returns its size in bytes. Throws Error{kInput}: a file
// cannot be read, changes meanwhile, or its name is too long or none of a bundle's; kDisk.
int64_t write_bundle(const std::string& path, std::vector<BundleFile> files);

// Unpacks PATH into FOLDER, which must be empty and used by nobody else, and returns the entries.
// Throws Error{kInput} unless PATH is a bundle whose files match its manifest: for damage, a
// cut-off end, links, files that the manifest does not name, and, before anything is unpacked, for
// names that check_bundle_name() refuses; kDisk.
[[nodiscard]] std::vector<BundleEntry> unpack_bundle(const std::string& path,
                                                     const std::string& folder);

}  // namespace dslaunch::launcher

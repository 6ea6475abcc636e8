// A bundle is one .tar.zst with an installation of dslaunch and files of the user. Its first entry,
// manifest.json, describes every other entry. Equal files make equal bundles.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "launcher/hosts/bundle_manifest.h"

namespace dslaunch::launcher {

// A file to put into a bundle.
struct BundleFile {
    std::string local_path;
    std::string name;  // in the bundle: bin/…, lib/dslaunch/…, files/…
};

// Called after each block. BYTES counts the bytes of files that are in the archive so far,
// BYTES_ALL the bytes of all files. May throw to give up.
using BundleProgress = std::function<void(int64_t bytes, int64_t bytes_all)>;

// Writes PATH whole or not at all and returns its size in bytes. Throws Error{kInput} if a file
// cannot be read, changes while it is read, or has a name that is too long or not allowed in a
// bundle; throws Error{kDisk} if PATH cannot be written.
int64_t write_bundle(
    const std::string& path, std::vector<BundleFile> files,
    const BundleProgress& progress = [](int64_t, int64_t) {});

// Unpacks PATH into FOLDER, which must be empty and not used by others, and returns the entries.
// Throws Error{kInput} if PATH is not a bundle or does not match its manifest: if it is damaged or
// truncated, or contains links or files that the manifest does not name. Names that
// check_bundle_name() refuses are found before anything is unpacked. Throws Error{kDisk} if FOLDER
// cannot be written.
[[nodiscard]] std::vector<BundleEntry> unpack_bundle(const std::string& path,
                                                     const std::string& folder);

}  // namespace dslaunch::launcher

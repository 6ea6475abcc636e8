// The best settings for reading and writing each disk of this machine, as `dslaunch io-bench`
// measured them, in one small file in the user's cache folder. Several processes may use the file
// at once; the last one to store wins.
#pragma once

#include <optional>
#include <string>

#include "base/bytes.h"
#include "storage/disk/open_block_file.h"

namespace dslaunch::storage {

// The settings for one disk, and the rates that they reach.
struct IoSettings {
    IoEngine engine = IoEngine::kAuto;
    Bytes block = mib(1);
    int depth = 8;
    double read_bytes_per_s = 0;  // measured with these settings; 0 if not known
    double write_bytes_per_s = 0;

    bool operator==(const IoSettings&) const = default;
};

// Returns <cache folder>/io-settings; empty if there is no home folder.
[[nodiscard]] std::string io_settings_path();

// Returns the settings stored at PATH for the disk DEVICE_ID (DiskFacts::id); nothing if there are
// no such settings or PATH cannot be read.
[[nodiscard]] std::optional<IoSettings> stored_io_settings(const std::string& path,
                                                           const std::string& device_id);

// Adds DEVICE_ID's settings to PATH, or replaces them there. Throws Error{kDisk}.
void store_io_settings(const std::string& path, const std::string& device_id,
                       const IoSettings& settings);

}  // namespace dslaunch::storage

// The best way to read and write each disk of this machine, as `dslaunch io-bench` measured it, in
// one small file of the user's cache. Several processes may use it at once; the last store wins.
#pragma once

#include <optional>
#include <string>

#include "base/bytes.h"
#include "storage/disk/open_block_file.h"

namespace dslaunch::storage {

struct IoSettings {
    IoEngine engine = IoEngine::kAuto;
    Bytes block = mib(1);
    int depth = 8;
    double read_bytes_per_s = 0;  // measured with these; 0: not known
    double write_bytes_per_s = 0;

    bool operator==(const IoSettings&) const = default;
};

// Returns <cache folder>/io-settings; empty without a home.
[[nodiscard]] std::string io_settings_path();

// Returns the settings stored at PATH for the disk DEVICE_ID (DiskFacts::id); nothing if there are
// none or PATH cannot be read.
[[nodiscard]] std::optional<IoSettings> stored_io_settings(const std::string& path,
                                                           const std::string& device_id);

// Adds DEVICE_ID's settings to PATH, or replaces them there. Throws Error{kDisk}.
void store_io_settings(const std::string& path, const std::string& device_id,
                       const IoSettings& settings);

}  // namespace dslaunch::storage

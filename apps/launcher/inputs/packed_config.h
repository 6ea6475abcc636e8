// The config that is packed into an archive: the user's JSON with references to the data.
#pragma once

#include <string>

#include "config/read/train_config.h"

namespace dslaunch::launcher {

// The paths of data that a packed config gets.
struct DataReferences {
    std::string train{};  // empty: the config's reference stays
    std::string eval{};
};

// Returns the path by which an archive at ARCHIVE_PATH refers to the file PATH. An absolute path
// stays; a relative path becomes relative to the archive's folder, because relative data paths in a
// packed config start there.
[[nodiscard]] std::string relative_to_archive(const std::string& path,
                                              const std::string& archive_path);

// Returns CONFIG as JSON with dslaunch.data.train and dslaunch.data.eval set. Keeps the order of
// the keys and drops comments. Throws Error{kUsage}, naming the config, if "dslaunch" or "data" is
// not an object. REQUIRES: CONFIG has no problems.
[[nodiscard]] std::string with_data(config::TrainConfig config, const DataReferences& references);

}  // namespace dslaunch::launcher

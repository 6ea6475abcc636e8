// The config that goes into an archive: the user's JSON with references to the data.
#pragma once

#include "config/read/train_config.h"

#include <string>

namespace dslaunch::launcher {

struct DataReferences {
    std::string train{};  // empty: the config's reference stays
    std::string eval{};
};

// Returns PATH as an archive at ARCHIVE_PATH refers to it: an absolute path stays, a relative one
// becomes relative to the archive's folder, where relative data paths of a packed config start.
[[nodiscard]] std::string relative_to_archive(const std::string& path,
                                              const std::string& archive_path);

// Returns CONFIG as JSON with dslaunch.data.train and dslaunch.data.eval set; keeps the order of
// keys, drops comments. Throws Error{kUsage} that names the config when "dslaunch" or "data" is not
// an object. REQUIRES: a config without problems.
[[nodiscard]] std::string with_data(config::TrainConfig config, const DataReferences& references);

}  // namespace dslaunch::launcher

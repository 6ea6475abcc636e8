// The config that goes into an archive: the user's JSON with references to the data.
#pragma once

#include "config/read/train_config.h"

#include <string>

namespace dslaunch::launcher {

struct DataReferences {
    std::string train{};  // empty: the config's reference stays
    std::string eval{};
};

// PATH as an archive at ARCHIVE_PATH refers to it: an absolute path stays, a relative one becomes
// relative to the archive's folder, where relative data paths of a packed config start.
[[nodiscard]] std::string relative_to_archive(const std::string& path,
                                              const std::string& archive_path);

// CONFIG as JSON with dslaunch.data.train and dslaunch.data.eval set; the order of keys is kept,
// comments are not. Throws Error{kUsage} naming the config when "dslaunch" or "data" is no object.
// REQUIRES: a config without problems.
[[nodiscard]] std::string with_data(config::TrainConfig config, const DataReferences& references);

}  // namespace dslaunch::launcher

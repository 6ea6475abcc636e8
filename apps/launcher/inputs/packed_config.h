// The config that goes into an archive: the user's JSON with references to the data.
#pragma once

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

// TEXT (JSON) with dslaunch.data.train and dslaunch.data.eval set; the order of keys is kept.
// Throws Error{kConfig} naming ORIGIN and the place when TEXT is not a JSON object, repeats a key,
// or has something else than an object under "dslaunch" or "data".
[[nodiscard]] std::string with_data(const std::string& text, const std::string& origin,
                                    const DataReferences& references);

}  // namespace dslaunch::launcher

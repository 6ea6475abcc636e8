#include "launcher/inputs/packed_config.h"

#include <filesystem>
#include <utility>

#include "base/error.h"

namespace dslaunch::launcher {

std::string relative_to_archive(const std::string& path, const std::string& archive_path) {
    namespace fs = std::filesystem;
    if (fs::path(path).is_absolute()) return path;
    // The folder's links are resolved, because ".." in a linked folder leads to its real parent. If
    // the file itself is a link, it stays a link.
    const fs::path file = fs::absolute(path);
    const fs::path folder = fs::weakly_canonical(fs::absolute(archive_path).parent_path());
    return (fs::weakly_canonical(file.parent_path()) / file.filename())
        .lexically_relative(folder)
        .string();
}

std::string with_data(config::TrainConfig config, const DataReferences& references) {
    for (const auto& [key, path] : {std::pair{"dslaunch.data.train", &references.train},
                                    std::pair{"dslaunch.data.eval", &references.eval}})
        if (!path->empty()) config::apply_text(config, key, *path, config.name);
    return config::to_json(config.root, 0) + "\n";
}

}  // namespace dslaunch::launcher

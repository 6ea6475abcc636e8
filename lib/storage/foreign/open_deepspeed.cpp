// Finds out which kind of DeepSpeed checkpoint a folder is.
#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "storage/foreign/deepspeed_model.h"
#include "storage/foreign/deepspeed_source.h"
#include "storage/foreign/deepspeed_split.h"
#include "storage/foreign/universal_source.h"

namespace dslaunch::storage {
namespace {

// Returns the folder of TAG. If TAG is empty, reads the tag from a file in PATH (`latest` or
// `latest_universal`); without such a file, returns PATH.
std::string tag_folder(const std::string& path, const std::string& tag) {
    std::error_code error;
    std::string name = tag, from = path;
    for (const char* file : {"latest", "latest_universal"}) {
        const std::string latest = fmt::format("{}/{}", path, file);
        if (!name.empty() || !std::filesystem::exists(latest, error)) continue;
        name = std::string(trim(read_file(latest, 4096)));
        from = latest;
        if (name.empty()) refuse(latest, "is empty, but should name a folder beside it");
    }
    if (name.empty()) return path;
    if (name.find('/') != std::string::npos || name == "..")
        refuse(from, "`{}` is not a tag, which is the name of a folder in the checkpoint's folder",
               name);
    std::string folder = fmt::format("{}/{}", path, name);
    if (std::filesystem::exists(folder, error)) return folder;
    std::vector<std::string> tags;
    for (const auto& entry : std::filesystem::directory_iterator(path, error))
        if (entry.is_directory(error)) tags.push_back(entry.path().filename().string());
    std::ranges::sort(tags);
    refuse(from, "names the folder `{}`, which does not exist{}", printable(name),
           tags.empty() ? ""
                        : fmt::format("; the folders beside it are {}: give one with --tag",
                                      printable(join(tags, ", "))));
}

}  // namespace

std::unique_ptr<DeepSpeedModel> open_deepspeed(const std::string& path, const std::string& tag,
                                               std::vector<std::string> frozen,
                                               bool weights_alone) {
    const std::string folder = tag_folder(path, tag);
    if (is_universal(folder)) return std::make_unique<UniversalSource>(folder);
    DeepSpeedOptions options;
    options.frozen = std::move(frozen);
    options.weights_alone = weights_alone;
    const SplitFiles files = find_split(folder);
    if (files.is_split()) return std::make_unique<DeepSpeedSplit>(folder, files, options);
    return std::make_unique<DeepSpeedSource>(folder, std::move(options));
}

}  // namespace dslaunch::storage

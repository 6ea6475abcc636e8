#include "launcher/hosts/bundle_command.h"

#include <fmt/core.h>

#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "launch/push/installation.h"
#include "launcher/hosts/bundle_archive.h"
#include "launcher/hosts/push_files.h"

namespace dslaunch::launcher {
namespace {

constexpr std::string_view kBundleUsage =
    "usage: dslaunch bundle OUT.tar.zst [FILE...]\n\n"
    "Writes dslaunch, dsworker, the libraries that they need, and FILEs (folders with all in "
    "them)\n"
    "into one archive, to keep and to bring to other hosts: `dslaunch push --bundle OUT.tar.zst`, "
    "or\n"
    "`tar --zstd -xf OUT.tar.zst` and then bin/dslaunch. Equal files make an equal archive.\n";

}  // namespace

int bundle_command(std::span<const std::string> arguments) {
    if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
        fmt::print(arguments.empty() ? stderr : stdout, "{}", kBundleUsage);
        return arguments.empty() ? static_cast<int>(ExitCode::kUsage) : 0;
    }
    for (const std::string& word : arguments) {
        if (word.starts_with("-")) {
            fail(ExitCode::kUsage,
                 "unknown option `{}`; bundle has none (for a file of that name: "
                 "./{})",
                 printable(word), printable(word));
        }
    }
    const launch::InstallationPaths paths = launch::installation_paths();
    std::vector<BundleFile> files;
    for (const launch::PushFile& file : list_installation()) {
        const bool is_library = file.target_path.starts_with(paths.libraries + "/");
        const std::string name = file.target_path.substr(file.target_path.rfind('/') + 1);
        files.push_back({file.local_path, (is_library ? "lib/dslaunch/" : "bin/") + name});
    }
    for (const std::string& word : arguments.subspan(1)) {
        for (const NamedFile& file : list_files(word)) {
            files.push_back({file.local_path, "files/" + file.below});
        }
    }
    const size_t files_all = files.size();
    const int64_t bytes = write_bundle(absolute_path(arguments[0]), std::move(files));
    fmt::print("{}: {} files, {}\n", printable(arguments[0]), files_all, to_text(Bytes{bytes}));
    return 0;
}

}  // namespace dslaunch::launcher

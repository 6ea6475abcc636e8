#include "launcher/inputs/pack_command.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text/command_line.h"
#include "base/text/file_faults.h"
#include "config/resolve/resolve.h"
#include "launcher/inputs/packed_config.h"
#include "storage/disk/output_place.h"
#include "storage/files/zip_archive.h"

namespace dslaunch::launcher {
namespace {

constexpr const char* kConfigName = "ds_config.json";
constexpr size_t kExtraBytesMax = size_t{256} << 20;

struct PackArguments {
    std::string archive, out, config, data, eval_data;
    std::vector<std::string> extra;  // NAME=FILE
    bool force = false;
};

// Throws all problems at once that `config check` finds without a number of ranks.
config::TrainConfig checked_config(const std::string& text, const std::string& origin) {
    config::TrainConfig config = config::parse_config(text, origin);
    config::require_valid(config::resolve(config, {}));
    return config;
}

// The text of the config to pack; empty when neither a config nor a data reference is given.
std::string config_of(const PackArguments& arguments, const std::string& out) {
    const bool refers = !arguments.data.empty() || !arguments.eval_data.empty();
    if (arguments.config.empty() && !refers) return {};
    std::string text = "{}", origin = "the new config";
    if (!arguments.config.empty()) {
        if (access(arguments.config.c_str(), F_OK) != 0)
            fail(ExitCode::kConfig, "config {}: no such file{}", printable(arguments.config),
                 near_file_text(arguments.config));
        text = read_file(arguments.config, kExtraBytesMax);
        origin = arguments.config;
    } else if (const storage::ZipArchive archive(arguments.archive);
               const auto packed = archive.extra(kConfigName)) {
        text = *packed;
        origin = arguments.archive + ":" + kConfigName;
    }
    config::TrainConfig config = checked_config(text, origin);
    DataReferences references;
    for (const auto& [path, into] : {std::pair{&arguments.data, &references.train},
                                     std::pair{&arguments.eval_data, &references.eval}}) {
        if (path->empty()) continue;
        if (access(path->c_str(), R_OK) != 0)
            fail(ExitCode::kInput, "{}: {}", *path, errno_text(errno));
        *into = relative_to_archive(*path, out);
    }
    return with_data(std::move(config), references);
}

void run_pack(const PackArguments& arguments) {
    std::error_code unreadable;
    if (std::filesystem::is_directory(arguments.archive, unreadable))
        fail(ExitCode::kInput,
             "{0}: is a folder, and a config is packed into an archive; beside a folder it is "
             "named: dslaunch {0} --config FILE",
             printable(arguments.archive));
    const std::string out = arguments.out.empty() ? arguments.archive : arguments.out;
    const bool replaces_itself =
        std::filesystem::equivalent(arguments.archive, out, unreadable) && !unreadable;
    storage::require_unused(out, arguments.force || replaces_itself);
    std::map<std::string, std::string> extra;
    for (const std::string& item : arguments.extra) {
        const size_t equals = item.find('=');
        if (equals == 0 || equals == std::string::npos)
            fail(ExitCode::kUsage, "--extra {}: must be NAME=FILE", item);
        const std::string name = item.substr(0, equals), path = item.substr(equals + 1);
        extra[name] = read_file(path, kExtraBytesMax);
        if (name == kConfigName) (void)checked_config(extra[name], path);
    }
    if (const std::string config = config_of(arguments, out); !config.empty())
        extra[kConfigName] = config;
    if (extra.empty())
        fail(ExitCode::kUsage, "nothing to pack: give --config, --data, --eval-data or --extra");
    storage::pack_archive(arguments.archive, out, extra);
    for (const auto& [name, content] : extra)
        log_info("pack", "{}: {} bytes={}", out, name, content.length());
}

}  // namespace

int pack_command(std::span<const std::string> arguments) {
    PackArguments parsed;
    CommandLine app(
        {.does = "Puts config and data reference into a model archive.",
         .examples = {"dslaunch pack train.pt --config ds_config.json --data corpus.tokens",
                      "dslaunch pack train.pt --config ds_config.json -o packed.pt"},
         .docs = "docs/reference/cli.md"},
        "dslaunch pack");
    app.add("MODEL.pt", parsed.archive, "a TorchScript archive or an exported program (.pt2)")
        .required();
    app.add("-o,--out FILE", parsed.out, "archive to write; default: the given one is replaced");
    app.add("--force", parsed.force, "replace another file than MODEL.pt, too");
    app.add("--config FILE", parsed.config,
            "ds_config.json to put in; default: the one inside is kept");
    app.add("--data FILE", parsed.data, "training data: sets dslaunch.data.train");
    app.add("--eval-data FILE", parsed.eval_data, "held-out data: sets dslaunch.data.eval");
    app.add("--extra NAME=FILE", parsed.extra, "another extra file; repeatable");
    if (app.parse({arguments.begin(), arguments.end()})) run_pack(parsed);
    return 0;
}

}  // namespace dslaunch::launcher

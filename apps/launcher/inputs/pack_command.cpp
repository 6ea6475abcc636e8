// `dslaunch pack ARCHIVE …`: puts a config, data references and other files into the archive, so
// that the archive alone is the job. Reads no tensor.
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <tuple>
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
#include "launcher/run/commands.h"
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

// Returns the parsed config. Throws one error with all problems that `config check` can find
// without knowing the number of ranks.
config::TrainConfig checked_config(const std::string& text, const std::string& origin) {
    config::TrainConfig config = config::parse_config(text, origin);
    config::require_valid(config::resolve(config, {}));
    return config;
}

struct PackedText {
    std::string text;               // the config to pack; empty: there is none
    std::vector<std::string> done;  // sentences for the report
};

// Returns the config to pack, and a report on it. Both are empty if neither a config nor a data
// reference is given.
PackedText config_of(const PackArguments& arguments, const std::string& out) {
    const bool refers = !arguments.data.empty() || !arguments.eval_data.empty();
    if (arguments.config.empty() && !refers) return {};
    std::string text = "{}", origin = "the new config", place = "a new config";
    std::vector<std::string> done;
    if (!arguments.config.empty()) {
        if (access(arguments.config.c_str(), F_OK) != 0)
            fail(ExitCode::kConfig, "config {}: no such file{}", printable(arguments.config),
                 near_file_text(arguments.config));
        text = read_file(arguments.config, kExtraBytesMax);
        origin = arguments.config;
        place = "it";
        done.push_back(
            fmt::format("the config in the archive is now a copy of {}", printable(origin)));
    } else if (const storage::ZipArchive archive(arguments.archive);
               const auto packed = archive.extra(kConfigName)) {
        text = *packed;
        origin = arguments.archive + ":" + kConfigName;
        place = "the config in the archive";
    }
    config::TrainConfig config = checked_config(text, origin);
    DataReferences references;
    for (const auto& [path, into, key] :
         {std::tuple{&arguments.data, &references.train, "dslaunch.data.train"},
          std::tuple{&arguments.eval_data, &references.eval, "dslaunch.data.eval"}}) {
        if (path->empty()) continue;
        if (access(path->c_str(), R_OK) != 0)
            fail(ExitCode::kInput, "{}: {}", *path, errno_text(errno));
        *into = relative_to_archive(*path, out);
        done.push_back(fmt::format("{} = {} added to {}", key, printable(*into), place));
    }
    return {with_data(std::move(config), references), std::move(done)};
}

void run_pack(const PackArguments& arguments) {
    std::error_code unreadable;
    if (std::filesystem::is_directory(arguments.archive, unreadable))
        fail(ExitCode::kInput,
             "{0}: is a folder, but a config can only be packed into an archive; give the config "
             "when you train the folder: dslaunch {0} --config FILE",
             printable(arguments.archive));
    const std::string out = arguments.out.empty() ? arguments.archive : arguments.out;
    const bool replaces_itself =
        std::filesystem::equivalent(arguments.archive, out, unreadable) && !unreadable;
    storage::require_new_file(out, arguments.force || replaces_itself);
    std::map<std::string, std::string> extra;
    std::vector<std::string> done = {replaces_itself ? "rewritten" : "written"};
    for (const std::string& item : arguments.extra) {
        const size_t equals = item.find('=');
        if (equals == 0 || equals == std::string::npos)
            fail(ExitCode::kUsage, "--extra {}: must have the form NAME=FILE", item);
        const std::string name = item.substr(0, equals), path = item.substr(equals + 1);
        extra[name] = read_file(path, kExtraBytesMax);
        if (name == kConfigName) (void)checked_config(extra[name], path);
        done.push_back(fmt::format("{} added as {}", printable(path), printable(name)));
    }
    if (PackedText config = config_of(arguments, out); !config.text.empty()) {
        extra[kConfigName] = std::move(config.text);
        done.insert(done.begin() + 1, config.done.begin(), config.done.end());
    }
    if (extra.empty())
        fail(ExitCode::kUsage, "nothing to pack: give --config, --data, --eval-data or --extra");
    storage::pack_archive(arguments.archive, out, extra);
    log_info("pack", "{}: {}", printable(out), join(done, "; "));
}

}  // namespace

int pack_command(std::span<const std::string> arguments) {
    PackArguments parsed;
    CommandLine app(
        {.does = "Puts a config and the names of data files into a model archive.",
         .examples = {"dslaunch pack train.pt --config ds_config.json --data corpus.tokens",
                      "dslaunch pack train.pt --config ds_config.json -o packed.pt"},
         .docs = "docs/reference/cli.md"},
        "dslaunch pack");
    app.add("MODEL.pt", parsed.archive, "a TorchScript archive or an exported program (.pt2)")
        .required();
    app.add("-o,--output FILE", parsed.out, "archive to write; default: MODEL.pt is rewritten");
    app.add("--force", parsed.force, "also replace an existing file other than MODEL.pt");
    app.add("--config FILE", parsed.config,
            "ds_config.json to add; default: keep the config inside");
    app.add("--data FILE", parsed.data, "name of the training data: sets dslaunch.data.train");
    app.add("--eval-data FILE", parsed.eval_data,
            "name of the held-out data: sets dslaunch.data.eval");
    app.add("--extra NAME=FILE", parsed.extra, "add FILE under the name NAME; repeatable");
    if (app.parse({arguments.begin(), arguments.end()})) run_pack(parsed);
    return 0;
}

}  // namespace dslaunch::launcher

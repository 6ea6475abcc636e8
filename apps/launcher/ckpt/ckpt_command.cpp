#include <fmt/core.h>
#include <fnmatch.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "base/error.h"
#include "base/path.h"
#include "base/text.h"
#include "base/text/command_line.h"
#include "launcher/ckpt/ckpt_parts.h"
#include "launcher/run/commands.h"
#include "storage/checkpoint/checkpoint_reader.h"

namespace dslaunch::launcher {
namespace {

struct CkptCommand {
    const char* name;
    int (*run)(CommandLine& command, const Parse& parse);
    HelpPage help;
};

constexpr const char* kDocs = "docs/guide/checkpoints.md";

std::vector<CkptCommand> ckpt_commands() {
    return {
        {"ls",
         ckpt_ls,
         {.does = "Lists the checkpoints below a folder, newest first.",
          .examples = {"dslaunch ckpt ls run"},
          .docs = kDocs}},
        {"verify",
         ckpt_verify,
         {.does = "Reads a whole checkpoint and checks the hash of every piece of data.",
          .examples = {"dslaunch ckpt verify run", "dslaunch ckpt verify run/checkpoints/step-100"},
          .exit_codes = "73 when a checkpoint is damaged.",
          .docs = kDocs}},
        {"inspect",
         ckpt_inspect,
         {.does = "Prints the training state and the tensors of a checkpoint or .safetensors file.",
          .examples = {"dslaunch ckpt inspect run",
                       "dslaunch ckpt inspect run --tensor '*.bias' --stats"},
          .docs = kDocs}},
        {"diff",
         ckpt_diff,
         {.does = "Compares two checkpoints of any world size and ZeRO stage.",
          .examples = {"dslaunch ckpt diff run1 run2 --tolerance 1e-6"},
          .exit_codes = "as for diff: 0 when the checkpoints are equal, 1 when they differ; other "
                        "codes are errors.",
          .docs = kDocs}},
        {"export",
         ckpt_export,
         {.does = "Writes the weights as safetensors, a Hugging Face folder, or TorchScript.",
          .examples = {"dslaunch ckpt export run model.safetensors --dtype bf16",
                       "dslaunch ckpt export run exported --format hf --config-from gpt2",
                       "dslaunch ckpt export run out.pt --format torchscript --model train.pt"},
          .docs = kDocs}},
        {"import",
         ckpt_import,
         {.does = "Makes a checkpoint from a DeepSpeed checkpoint, a .safetensors file or a "
                  "Hugging Face folder. Runs no code from these files.",
          .examples = {"dslaunch ckpt import deepspeed_run run",
                       "dslaunch ckpt import model.safetensors run"},
          .docs = kDocs}},
    };
}

}  // namespace

std::vector<storage::StoredCheckpoint> checkpoints_at(storage::FileTree& tree,
                                                      const std::string& path) {
    const storage::CheckpointPlace place = storage::find_checkpoints(tree, path);
    if (place.step_folder.empty()) return storage::CheckpointStore(tree, place.root, 0).list();
    const std::string root = folder_of(place.step_folder);
    const std::string name = place.step_folder.substr(place.step_folder.rfind('/') + 1);
    std::vector<storage::StoredCheckpoint> all = storage::CheckpointStore(tree, root, 0).list();
    std::erase_if(all, [&](const storage::StoredCheckpoint& one) {
        return one.folder != fmt::format("{}/{}", root, name);
    });
    // CheckpointStore does not list a folder that has been renamed or copied, such as
    // abandoned-ID-step-N. This function adds the folder.
    if (all.empty()) all.push_back(storage::checkpoint_in(tree, place.step_folder));
    return all;
}

std::string_view kind_name(storage::TensorKind kind) {
    static constexpr std::string_view kNames[] = {"trained", "frozen", "buffer", "rank-buffer"};
    return kNames[static_cast<size_t>(kind)];
}

bool matches_glob(const std::string& glob, const storage::CheckpointTensor& tensor) {
    const auto matches = [&](const std::string& name) {
        return ::fnmatch(glob.c_str(), name.c_str(), 0) == 0;
    };
    return matches(tensor.name) || std::ranges::any_of(tensor.aliases, matches);
}

void tell_exported(const storage::TensorSource& source, const storage::ExportReport& report) {
    fmt::print(
        stderr, "dslaunch: {}: {} tensors, {}, written to {}{}\n", printable(source.path()),
        report.names.size(), to_text(report.bytes), printable(report.files.front()),
        report.files.size() == 1
            ? ""
            : fmt::format(" … {} ({} files)", printable(report.files.back()), report.files.size()));
    if (report.left_out.empty()) return;
    std::string names;
    for (size_t i = 0; i < std::min<size_t>(report.left_out.size(), 4); ++i)
        names += fmt::format("{}{}", i == 0 ? "" : ", ", printable(report.left_out[i]));
    fmt::print(
        stderr, "dslaunch: left out these tensors: {}{}\n", names,
        report.left_out.size() <= 4 ? "" : fmt::format(" and {} more", report.left_out.size() - 4));
}

int ckpt_command(std::span<const std::string> arguments) {
    CommandLine app(
        {.does = "Lists, verifies, inspects, compares, exports and imports checkpoints.",
         .examples = {"dslaunch ckpt ls run"},
         .docs = kDocs},
        "dslaunch ckpt");
    const std::vector<CkptCommand> rows = ckpt_commands();
    std::map<std::string, CommandLine*> lines;
    for (const CkptCommand& row : rows) lines[row.name] = &app.subcommand(row.name, row.help);
    const Parse parse = [&] { return app.parse({arguments.begin(), arguments.end()}); };
    // Only the chosen subcommand declares its options.
    for (const std::string& word : arguments) {
        for (const CkptCommand& row : rows) {
            if (word == row.name) return row.run(*lines.at(word), parse);
        }
    }
    static_cast<void>(parse());  // prints the help or throws
    return 0;
}

}  // namespace dslaunch::launcher

// dslaunch zero_to_fp32, also started under the name zero_to_fp32.py. It does the same as
// DeepSpeed's script zero_to_fp32.py, with the same flags, defaults and file names. It reads
// checkpoints of DeepSpeed and of dslaunch.
#include <fmt/core.h>

#include <cstdio>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/command_line.h"
#include "launcher/ckpt/ckpt_parts.h"
#include "launcher/run/commands.h"
#include "storage/checkpoint/checkpoint_reader.h"
#include "storage/export/source_of_path.h"
#include "storage/export/weight_export.h"
#include "storage/foreign/deepspeed_model.h"
#include "storage/foreign/import.h"

namespace dslaunch::launcher {
namespace {

struct ZeroToFp32Arguments {
    std::string checkpoint_dir, output_dir, tag;
    std::string max_shard_size = "5GB";
    std::vector<std::string> frozen;
    bool safe_serialization = false;
    bool exclude_frozen = false;
    bool force = false;
};

std::unique_ptr<storage::TensorSource> open_deepspeed(const ZeroToFp32Arguments& arguments) {
    const auto format = arguments.tag.empty()
                            ? storage::detect_foreign_format(arguments.checkpoint_dir)
                            : storage::ForeignFormat::kDeepSpeed;
    if (format != storage::ForeignFormat::kDeepSpeed)
        fail(ExitCode::kInput,
             "{}: is {}, not a checkpoint of DeepSpeed or of dslaunch; its weights need no "
             "conversion: `dslaunch FOLDER --data FILE` trains them",
             printable(arguments.checkpoint_dir), storage::foreign_format_name(format));
    auto source = storage::open_deepspeed(arguments.checkpoint_dir, arguments.tag, arguments.frozen,
                                          /*weights_alone=*/!arguments.exclude_frozen);
    print_message(fmt::format("dslaunch: {}: {}", printable(arguments.checkpoint_dir),
                              printable(source->writer())));
    for (const std::string& note : source->notes())
        print_message(fmt::format("dslaunch: note: {}", printable(note)));
    return source;
}

std::string tagged(storage::FileTree& tree, const ZeroToFp32Arguments& arguments) {
    if (arguments.tag.empty()) return arguments.checkpoint_dir;
    const storage::CheckpointPlace place =
        storage::find_checkpoints(tree, arguments.checkpoint_dir);
    if (place.root.empty())
        fail(ExitCode::kUsage, "--tag: leave it out, since {} is already a single checkpoint",
             printable(arguments.checkpoint_dir));
    return fmt::format("{}/{}", place.root, arguments.tag);
}

void convert(const ZeroToFp32Arguments& arguments) {
    storage::ExportOptions options;
    options.out = arguments.output_dir;
    options.dtype = DType::kF32;
    options.shard_max = storage::parse_shard_bytes(arguments.max_shard_size, "--max_shard_size");
    options.excludes_frozen = arguments.exclude_frozen;
    options.is_forced = arguments.force;
    if (options.out.ends_with(".safetensors"))
        fail(ExitCode::kUsage,
             "{}: output_dir must be a folder; `dslaunch ckpt export` writes a single file",
             printable(options.out));
    const std::unique_ptr<storage::FileTree> tree = storage::make_disk_tree();
    const auto source = storage::holds_checkpoints(*tree, arguments.checkpoint_dir)
                            ? storage::open_checkpoint(*tree, tagged(*tree, arguments))
                            : open_deepspeed(arguments);
    storage::check_export_place(options);
    if (!arguments.safe_serialization)
        print_message(fmt::format(
            "dslaunch: writing model.safetensors instead of pytorch_model.bin, since pickle files "
            "are not supported; transformers and safetensors.torch.load_file can read it"));
    tell_exported(*source, storage::export_weights(*source, options));
}

}  // namespace

int zero_to_fp32_command(std::span<const std::string> arguments) {
    ZeroToFp32Arguments parsed;
    CommandLine app({.does = "Writes the fp32 weights of a DeepSpeed or dslaunch checkpoint as "
                             "safetensors. Has the same flags as DeepSpeed's zero_to_fp32.py.",
                     .examples = {"dslaunch zero_to_fp32 deepspeed_run weights",
                                  "dslaunch zero_to_fp32 deepspeed_run weights -t global_step1"},
                     .docs = "docs/guide/checkpoints.md"},
                    "dslaunch zero_to_fp32");
    app.add("CHECKPOINT_DIR", parsed.checkpoint_dir,
            "DeepSpeed's folder with the file `latest`, or a folder with dslaunch checkpoints")
        .required();
    app.add("OUTPUT_DIR", parsed.output_dir,
            "folder for model.safetensors, or its shards and their index")
        .required();
    app.add("--max-shard-size SIZE", parsed.max_shard_size,
            "largest size of a file, such as 5GB or 500MB")
        .show_default();
    app.add("--safe-serialization", parsed.safe_serialization,
            "accepted, no effect: safetensors is always written, never pickle");
    app.add("-t,--tag NAME", parsed.tag,
            "folder of the step, such as global_step1 or step-100; default: the step in "
            "DeepSpeed's file `latest`, or dslaunch's newest checkpoint");
    app.add("--exclude-frozen-parameters", parsed.exclude_frozen,
            "leave out parameters that are not trained");
    app.add("--frozen GLOB", parsed.frozen,
            "only for stage 0 in fp32: parameters that are not trained, if the file does not say "
            "which; repeatable");
    bool debug = false;
    app.add("-d,--debug", debug, "log more");
    app.add("--force", parsed.force, "replace a model that already exists in OUTPUT_DIR");
    if (!app.parse({arguments.begin(), arguments.end()})) return 0;
    if (debug) set_log_level(LogLevel::kDebug);
    convert(parsed);
    return 0;
}

}  // namespace dslaunch::launcher

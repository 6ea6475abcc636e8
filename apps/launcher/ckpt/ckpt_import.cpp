// dslaunch ckpt import: makes a checkpoint of dslaunch from the files of other programs.
#include <fmt/core.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/screen.h"
#include "base/terminal/progress.h"
#include "base/text.h"
#include "base/text/file_faults.h"
#include "base/text/words.h"
#include "launcher/ckpt/ckpt_parts.h"
#include "storage/export/source_of_path.h"
#include "storage/foreign/import.h"
#include "storage/huggingface/model_folder.h"
#include "storage/huggingface/named_place.h"
#include "storage/named/place.h"

namespace dslaunch::launcher {
namespace {

struct ImportArguments {
    storage::ImportOptions options;
    std::string out;
    bool force = false;
    bool json = false;
};

void print_json(const storage::ImportReport& report) {
    JsonWriter json;
    json.begin_object().field("folder", report.folder).field("step", report.step);
    json.field("format", storage::foreign_format_name(report.format))
        .field("writer", report.writer);
    json.field("tensors", report.tensor_count).field("elements", report.numel);
    json.field("optimizer_states", report.has_states).field("finite", report.is_finite);
    json.field("bytes", report.bytes.value).key("notes").begin_array();
    for (const std::string& note : report.notes) json.value(note);
    json.end_array().end_object();
    fmt::print("{}\n", json.text());
}

// Returns the command that trains from the checkpoint. If the source is itself a model, the command
// names it.
std::string next_command(const ImportArguments& arguments) {
    const std::string& source = arguments.options.source;
    const bool is_folder = storage::model_folder_of(source) && !source.ends_with(".json");
    const std::string model = is_folder ? source : storage::archive_of_job(source).value_or("");
    return fmt::format(
        "dslaunch {} --output {} --resume --data FILE{}",
        model.empty() ? "MODEL" : shell_word(model), shell_word(arguments.out),
        model.empty()
            ? " (MODEL: the archive or Hugging Face folder whose weights have these names)"
            : "");
}

// Refuses the folder SOURCE if it has checkpoints of dslaunch, which have more than its weights.
void refuse_own_checkpoints(storage::FileTree& tree, const std::string& source) {
    const storage::Place place = storage::place_at(source);
    if (place.kind == storage::PlaceKind::kCheckpoint ||
        place.kind == storage::PlaceKind::kCheckpoints)
        storage::refuse_place(place, storage::PlaceUse::kForeign);
    const bool is_run = place.kind == storage::PlaceKind::kUnsavedRun ||
                        place.kind == storage::PlaceKind::kModel ||
                        place.kind == storage::PlaceKind::kArchiveRun;
    if (!is_run || !storage::holds_checkpoints(tree, source)) return;
    const std::string weights = source + "/model.safetensors";
    const std::string model = storage::target_of_run(source);
    std::error_code unreadable;
    fail(ExitCode::kInput,
         "{}: is the folder of a run of dslaunch, whose checkpoints need no import: dslaunch {} "
         "--data FILE --output {} --resume continues it{}",
         printable(source), model.empty() ? "MODEL" : shell_word(model), shell_word(source),
         std::filesystem::exists(weights, unreadable)
             ? fmt::format("; to import only its weights: dslaunch ckpt import {} NEW",
                           shell_word(weights))
             : "");
}

void run_import(const ImportArguments& arguments) {
    const std::string& source = arguments.options.source;
    std::error_code unreadable;
    if (!std::filesystem::exists(source, unreadable) && source.find('/') == source.npos)
        fail(ExitCode::kInput,
             "{}: no such file or folder{}; give the folder of a DeepSpeed checkpoint, of a run or "
             "of a model",
             printable(source), near_file_text(source));
    if (!std::filesystem::exists(source, unreadable)) storage::fail_missing_model(source);
    storage::ImportOptions options = arguments.options;
    options.root = fmt::format("{}/checkpoints", arguments.out);
    const std::unique_ptr<storage::FileTree> tree = storage::make_disk_tree();
    refuse_own_checkpoints(*tree, source);
    if (!arguments.force && tree->list(options.root) &&
        !storage::CheckpointStore(*tree, options.root, 0).list().empty())
        fail(ExitCode::kInput,
             "{}: already contains checkpoints; name another folder, or add this checkpoint with "
             "--force, which replaces a checkpoint of the same step and renames later checkpoints "
             "to abandoned-…",
             printable(options.root));
    Progress progress("ckpt", "importing the checkpoint");
    const storage::ImportReport report = storage::import_checkpoint(*tree, options);
    progress.end();
    if (!report.is_finite)
        print_message(
            fmt::format("dslaunch: warning: the checkpoint contains a NaN or an infinity: "
                        "--resume=auto will skip it"));
    if (arguments.json) return print_json(report);
    print_message(fmt::format(
        "dslaunch: {}: {} tensors, {} elements, {}, {} at step {}", printable(report.folder),
        report.tensor_count, report.numel, to_text(report.bytes),
        report.has_states ? "with optimizer states" : "only weights", report.step));
    print_message(fmt::format("dslaunch: read: {}", printable(report.writer)));
    for (const std::string& note : report.notes)
        print_message(fmt::format("dslaunch: note: {}", printable(note)));
    print_message(fmt::format("dslaunch: next: {}", next_command(arguments)));
}

}  // namespace

int ckpt_import(CommandLine& command, const Parse& parse) {
    ImportArguments arguments;
    command
        .add("PATH", arguments.options.source,
             "DeepSpeed's folder (with the file `latest`) or one global_stepN folder in it, a "
             ".safetensors file, or a folder with model.safetensors")
        .required();
    command
        .add("OUT", arguments.out,
             "an --output folder: the checkpoint is written to OUT/checkpoints/step-N, so that "
             "--output OUT --resume continues from it")
        .required();
    command.add("-t,--tag NAME", arguments.options.tag,
                "DeepSpeed only: folder of the step; default: the one named in `latest`");
    command.add("--strip-prefix PREFIX", arguments.options.names.strip,
                "remove this prefix from all names; DeepSpeed's own `module.` is removed first");
    command.add(
        "--add-prefix PREFIX", arguments.options.names.add,
        "add this prefix to all names, for example `model.` if the traced module wraps the model");
    command.add("--frozen GLOB", arguments.options.frozen,
                "only for DeepSpeed stage 0 in fp32: parameters that are not trained, if the file "
                "does not say which; repeatable");
    command.add("--force", arguments.force, "import even if OUT already has checkpoints");
    command.add("--json", arguments.json, "one JSON object");
    if (parse()) run_import(arguments);
    return 0;
}

}  // namespace dslaunch::launcher

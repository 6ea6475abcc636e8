// dslaunch ckpt export: writes the weights of a checkpoint for other programs.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/path.h"
#include "base/screen.h"
#include "base/terminal/progress.h"
#include "base/text.h"
#include "base/text/words.h"
#include "launcher/ckpt/ckpt_parts.h"
#include "launcher/run/commands.h"
#include "storage/export/source_of_path.h"
#include "storage/export/weight_export.h"
#include "storage/huggingface/model_folder.h"
#include "storage/huggingface/named_place.h"
#include "storage/named/place.h"

namespace dslaunch::launcher {
namespace {

struct ExportArguments {
    std::string path;
    std::string format = "safetensors";
    std::string dtype, shard_max, config_from, model;
    std::vector<std::string> op_libraries;
    bool trust_model = false;
    bool all_names = false;
    bool json = false;
    storage::ExportOptions options;
};

// Returns PATH and the two folders above it. The folder of the run that saved the checkpoint at
// PATH is one of them.
std::array<std::filesystem::path, 3> places_above(const std::string& path) {
    const std::filesystem::path place =
        (std::filesystem::absolute(path) / "").lexically_normal().parent_path();
    return {place, place.parent_path(), place.parent_path().parent_path()};
}

// Returns true if the run that saved the checkpoint at PATH trained an archive, not a Hugging Face
// folder.
bool trained_archive(const std::string& path) {
    return std::ranges::any_of(places_above(path), [](const std::filesystem::path& place) {
        return storage::archive_of_job(place.string()).has_value();
    });
}

// Returns the folder of the run that saved the checkpoint at PATH. Returns "" if the run has not
// written a config.json, or if OUT is a file or already has a config.json.
std::string config_of_run(const std::string& path, const std::string& out) {
    std::error_code ignored;
    if (out.ends_with(".safetensors") || std::filesystem::exists(out + "/config.json", ignored))
        return "";
    for (const std::filesystem::path& place : places_above(path))
        if (std::filesystem::exists(place / "config.json", ignored) &&
            std::filesystem::exists(place / "checkpoints", ignored))
            return path_from_here(place.string());
    return "";
}

// Refuses unknown formats, and options that belong to another format.
void check_combination(const ExportArguments& arguments) {
    if (arguments.format == "gguf" && trained_archive(arguments.path))
        fail(ExitCode::kUsage,
             "--format gguf: the run trained an archive, but GGUF can only be made from a Hugging "
             "Face folder; use --format torchscript --model ARCHIVE for a .pt file, or --format "
             "safetensors for the weights");
    if (arguments.format == "gguf") {
        const storage::Place place = storage::place_at(arguments.path);
        const std::string path = printable(arguments.path);
        if (place.kind == storage::PlaceKind::kModel)
            fail(ExitCode::kUsage,
                 "--format gguf: {} is already a model and needs no export; use: dslaunch compress "
                 "{} --to q8_0 -o NAME.gguf",
                 path, shell_word(arguments.path));
        fail(ExitCode::kUsage,
             "--format gguf: {} {}; then: dslaunch compress NEW --to q8_0 -o NAME.gguf", path,
             storage::place_text(place, storage::PlaceUse::kModel));
    }
    if (arguments.format != "safetensors" && arguments.format != "hf" &&
        arguments.format != "torchscript")
        fail(ExitCode::kUsage, "--format: `{}` is none of safetensors, hf, torchscript",
             printable(arguments.format));
    const bool torchscript = arguments.format == "torchscript";
    const storage::ExportOptions& options = arguments.options;
    if (torchscript && arguments.model.empty())
        fail(ExitCode::kUsage,
             "--format torchscript: give the archive that was trained as --model train.pt; the "
             "model's graph is taken from it");
    if (!torchscript && !arguments.model.empty())
        fail(ExitCode::kUsage, "--model is only for --format torchscript");
    if (!torchscript && !arguments.op_libraries.empty())
        fail(ExitCode::kUsage, "--op-library is only for --format torchscript");
    if (!torchscript && arguments.trust_model)
        fail(ExitCode::kUsage, "--trust-model is only for --format torchscript");
    if (arguments.all_names && arguments.format != "hf")
        fail(ExitCode::kUsage,
             "--all-names is only for --format hf; safetensors always has all names");
    if (!torchscript) return;
    if (!arguments.dtype.empty() || !arguments.shard_max.empty() ||
        !arguments.config_from.empty() || options.excludes_frozen || !options.exclude.empty() ||
        !options.strip_prefix.empty() || !options.add_prefix.empty())
        fail(ExitCode::kUsage,
             "--format torchscript accepts only PATH, OUT, --model, --op-library, --trust-model "
             "and --force: the archive determines names and dtypes");
}

// Refuses an OUT with the ending of a different format: the export would make a folder with this
// name.
void check_out(const ExportArguments& arguments) {
    const std::string& out = arguments.options.out;
    if (arguments.format == "torchscript") return;
    if (out.ends_with(".gguf"))
        fail(ExitCode::kUsage,
             "{}: a checkpoint is not written as GGUF; write a folder with --format hf, then: "
             "dslaunch compress FOLDER --to q8_0 -o {}",
             printable(out), shell_word(out));
    if (arguments.format == "hf" && out.ends_with(".safetensors"))
        fail(ExitCode::kUsage,
             "{0}: --format hf makes a folder with config.json and tokenizer: give a name without "
             "this ending, such as {1}; for a single file of weights, leave out --format hf",
             printable(out), printable(out.substr(0, out.size() - sizeof(".safetensors") + 1)));
    for (const char* ending : {".pt", ".pt2", ".pth", ".bin", ".ckpt", ".onnx", ".npz", ".h5"})
        if (out.ends_with(ending))
            fail(ExitCode::kUsage, "{}: OUT must be a folder or a file NAME.safetensors{}",
                 printable(out),
                 std::string_view(ending) == ".pt" ? "; --format torchscript writes a .pt" : "");
}

// Refuses to write an adapter's tensors as if they were a whole model.
void require_whole_model(const storage::TensorSource& source, const ExportArguments& arguments) {
    const storage::Checkpoint* const checkpoint = source.checkpoint();
    if (arguments.format != "hf" || checkpoint == nullptr || checkpoint->base_fingerprint.empty())
        return;
    const storage::Place place = storage::place_at(arguments.path);
    storage::refuse_place(place, storage::PlaceUse::kModel, ExitCode::kUsage);
}

// Refuses the config of another model: SOURCE's embedding must have as many tokens as the config.
void require_own_config(const storage::TensorSource& source, const std::string& folder) {
    storage::TransformerConfig config;
    try {
        config = storage::open_model_folder(folder).config;
    } catch (const Error&) {
        return;  // a model family that dslaunch cannot read
    }
    for (const storage::CheckpointTensor& tensor : source.tensors())
        if (tensor.shape.size() == 2 && tensor.shape.front() == config.vocabulary) return;
    fail(ExitCode::kInput,
         "--config-from {}: belongs to another model: its vocabulary has {}, but {} has no "
         "embedding of that size",
         printable(folder), counted(config.vocabulary, "token"), printable(source.path()));
}

void warn_without_config(const ExportArguments& arguments) {
    const std::string& out = arguments.options.out;
    if (arguments.format != "hf" || out.ends_with(".safetensors") ||
        access((out + "/config.json").c_str(), F_OK) == 0)
        return;
    const std::string way =
        trained_archive(arguments.path)
            ? fmt::format(
                  "the run trained an archive, which has no config.json; export it as an archive: "
                  "dslaunch ckpt export {} NEW.pt --format torchscript --model TRAINED.pt",
                  shell_word(arguments.path))
            : "use --config-from DIR to copy it from the folder of the model that was trained";
    print_message(fmt::format(
        "dslaunch: warning: {} has no config.json, so programs cannot load it as a model: {}",
        printable(out), way));
}

storage::ExportOptions options_of(const ExportArguments& arguments) {
    storage::ExportOptions options = arguments.options;
    options.is_for_transformers = arguments.format == "hf";
    options.writes_all_names = arguments.format != "hf" || arguments.all_names;
    if (arguments.dtype == "fp32") options.dtype = DType::kF32;
    if (arguments.dtype == "bf16") options.dtype = DType::kBF16;
    if (arguments.dtype == "fp16") options.dtype = DType::kF16;
    if (!arguments.shard_max.empty())
        options.shard_max = storage::parse_shard_bytes(arguments.shard_max, "--max-shard-size");
    return options;
}

void print_json(const storage::TensorSource& source, const storage::ExportReport& report,
                const std::vector<std::string>& copied) {
    JsonWriter json;
    json.begin_object().field("path", source.path()).field("bytes", report.bytes.value);
    const auto list = [&](const char* name, const std::vector<std::string>& items) {
        json.key(name).begin_array();
        for (const std::string& item : items) json.value(item);
        json.end_array();
    };
    list("files", report.files);
    list("copied", copied);
    list("tensors", report.names);
    list("left_out", report.left_out);
    json.end_object();
    fmt::print("{}\n", json.text());
}

void warn_when_not_finite(const storage::TensorSource& source) {
    if (source.checkpoint() != nullptr && !source.checkpoint()->is_finite())
        print_message(fmt::format("dslaunch: warning: {} contains a NaN or an infinity",
                                  printable(source.path())));
}

void run_export(ExportArguments arguments) {
    check_combination(arguments);
    if (arguments.format == "hf" && arguments.config_from.empty())
        arguments.config_from = config_of_run(arguments.path, arguments.options.out);
    check_out(arguments);
    const std::unique_ptr<storage::FileTree> tree = storage::make_disk_tree();
    if (arguments.format == "torchscript") {
        std::vector<std::string> words = {
            "export",   storage::choose_checkpoint(*tree, arguments.path),
            "--model",  arguments.model,
            "--output", arguments.options.out};
        for (const std::string& library : arguments.op_libraries)
            words.push_back("--op-library=" + library);
        if (arguments.trust_model) words.emplace_back("--trust-model");
        if (arguments.options.is_forced) words.emplace_back("--force");
        if (arguments.json) words.emplace_back("--json");
        become_worker(words);
    }
    const storage::ExportOptions options = options_of(arguments);
    const auto source = storage::open_tensor_source(*tree, arguments.path);
    require_whole_model(*source, arguments);
    warn_when_not_finite(*source);
    const bool with_config = !arguments.config_from.empty();
    if (with_config && options.out.ends_with(".safetensors"))
        fail(ExitCode::kUsage, "{}: is a file, but --config-from needs a folder to copy to",
             options.out);
    // Checks the folder before writing the weights, so that a wrong folder is reported at once.
    if (with_config) {
        storage::check_model_config(arguments.config_from);
        require_own_config(*source, arguments.config_from);
        storage::require_new_config(arguments.config_from, options.out, options.is_forced);
    }
    Progress progress("ckpt", "writing the weights");
    const storage::ExportReport report = storage::export_weights(*source, options);
    progress.end();
    std::vector<std::string> copied;
    if (with_config) copied = storage::copy_model_config(arguments.config_from, options.out);
    warn_without_config(arguments);
    if (arguments.json) return print_json(*source, report, copied);
    tell_exported(*source, report);
    if (with_config) {
        std::string names;
        for (const std::string& name : copied) names += fmt::format(" {}", printable(name));
        print_message(fmt::format("dslaunch: copied these files from {}:{}",
                                  printable(arguments.config_from), names));
    }
}

void declare_names(CommandLine& command, storage::ExportOptions& options) {
    command.add("--strip-prefix PREFIX", options.strip_prefix,
                "remove this prefix from all names, for example `model.` if the traced module "
                "wrapped the model");
    command.add("--add-prefix PREFIX", options.add_prefix, "add this prefix to all names");
    command.add("--exclude GLOB", options.exclude,
                "leave out tensors with these names; repeatable");
    command.add("--exclude-frozen", options.excludes_frozen,
                "leave out parameters that are not trained");
}

}  // namespace

int ckpt_export(CommandLine& command, const Parse& parse) {
    ExportArguments arguments;
    command
        .add("PATH", arguments.path,
             "a step folder, or a folder with checkpoints (the newest intact checkpoint is used)")
        .required();
    command
        .add("OUT", arguments.options.out,
             "the folder to write, or one file NAME.safetensors; for torchscript the .pt file")
        .required();
    command
        .add("--format NAME", arguments.format,
             "safetensors (with every name of a tied tensor), hf (as transformers reads it: one "
             "name per tensor, without the buffers that transformers computes itself), torchscript")
        .show_default();
    command
        .add("--dtype NAME", arguments.dtype,
             "fp32, bf16 or fp16; default: as stored in the checkpoint")
        .one_of({"fp32", "bf16", "fp16"});
    command.add("--max-shard-size SIZE", arguments.shard_max,
                "write several files of at most this size, such as 5GB or 500MB, and an index; "
                "default: one file");
    command.add("--config-from DIR", arguments.config_from,
                "copy config.json, the tokenizer and similar files from this Hugging Face folder; "
                "default for hf: from the run's folder if they are there");
    command.add("--all-names", arguments.all_names,
                "hf: write a tied tensor under each of its names");
    declare_names(command, arguments.options);
    command.add("--model FILE", arguments.model, "torchscript: the archive that was trained");
    command.add("--op-library FILE", arguments.op_libraries,
                "torchscript: load this library (.so) of operators before the model; repeatable");
    command.add(
        "--trust-model", arguments.trust_model,
        "torchscript: let the model's code use operators that access files, memory or processes");
    command.add("--force", arguments.options.is_forced,
                "replace a model that already exists in OUT");
    command.add("--json", arguments.json, "one JSON object");
    if (parse()) run_export(arguments);
    return 0;
}

}  // namespace dslaunch::launcher

#include "compress/folder_task.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "compress/compensation.h"
#include "compress/layer_files.h"
#include "storage/disk/output_place.h"
#include "storage/export/weight_export.h"
#include "storage/files/file_names.h"
#include "storage/files/hash128.h"

namespace dslaunch::compress {
namespace {

namespace fs = std::filesystem;

void require_form_of_model(const FolderTask& task) {
    const storage::TransformerConfig& config = task.folder->config;
    const std::string& path = task.folder->config_path;
    if (config.quantization)
        fail(ExitCode::kInput,
             "{}: the weights are already quantized ({}): compress the original model instead",
             path, method_name(config.quantization->method));
    if (config.is_transposed)
        fail(ExitCode::kInput,
             "{}: a {} stores its matrices transposed, in modules (Conv1D) that the format "
             "compressed-tensors does not support; give --weights int4 to `generate` or `serve`, "
             "which then quantize the weights as they read the original folder",
             path, config.architecture);
    if (!config.outer.empty())
        fail(ExitCode::kInput,
             "{}: is a {}, but only the text part of such a model can be compressed: give a folder "
             "of the text model alone, as `dslaunch model merge` and `dslaunch ckpt export` write "
             "it",
             path, config.outer);
    for (const std::string& file : task.folder->weights)
        if (file.ends_with(storage::kGgufOfFolder))
            fail(ExitCode::kInput,
                 "{}: GGUF weights cannot be compressed: convert the model to a folder with "
                 ".safetensors files (`dslaunch model import`), and compress the new folder",
                 printable(file));
}

// Throws if OUT has weight files or an adapter_config.json of another model. A program that loads
// OUT would read these files together with the new shards, or in place of them.
void require_room_for_shards(const FolderTask& task) {
    std::set<std::string> own = {fs::path(task.folder->index_path).filename().string()};
    for (const std::string& path : task.folder->weights)
        own.insert(fs::path(path).lexically_relative(fs::path(task.from)).generic_string());
    std::error_code missing;
    for (const auto& entry : fs::directory_iterator(out_of(task), missing)) {
        const std::string name = entry.path().filename().string();
        const bool is_weights = name.starts_with("model") && name.ends_with(".safetensors");
        if (own.contains(name) || (!is_weights && name != storage::kAdapterConfig)) continue;
        fail(ExitCode::kInput,
             "{}: belongs to another model, and would be read instead of the new shards or beside "
             "them: use an empty folder, or remove the older model",
             printable(entry.path().string()));
    }
}

}  // namespace

std::string out_of(const FolderTask& task) {
    std::string out = task.out;
    while (out.size() > 1 && out.ends_with('/')) out.pop_back();
    return out;
}

std::string partial_of(const FolderTask& task) {
    return out_of(task) + ".partial";
}

std::string options_text(const FolderTask& task) {
    const RoundingForm& form = task.form.rounding;
    std::string text =
        fmt::format("{} {} {} {} {} {} {}", kRoundingVersion, task.form.name, form.bits,
                    form.has_minimum, form.group, form.searches, static_cast<int>(form.scale));
    if (task.layer_function)
        text += fmt::format(" descent {} {}", task.descent.steps, task.descent.rows);
    for (const std::string& file : task.folder->files()) {
        std::error_code unreadable;
        text +=
            fmt::format(" {} {} {}", fs::absolute(file).string(), fs::file_size(file, unreadable),
                        fs::last_write_time(file, unreadable).time_since_epoch().count());
    }
    for (const std::vector<int32_t>& tokens : task.texts) {
        const std::string_view bytes(reinterpret_cast<const char*>(tokens.data()),
                                     tokens.size() * sizeof(int32_t));
        text += fmt::format(" {}", hash_text(storage::hash_of(bytes)));
    }
    return hash_text(storage::hash_of(text));
}

void require_compressible(const FolderTask& task) {
    require_form_of_model(task);
    storage::require_weights(*task.folder);
    const std::string out = out_of(task);
    std::error_code missing;
    if (fs::equivalent(task.from, out, missing))
        fail(ExitCode::kInput, "{}: is the model itself: give another folder for the result",
             printable(out));
    if (fs::is_regular_file(out, missing))
        fail(ExitCode::kInput, "{}: is a file, but the form {} is a folder: give another path",
             printable(out), task.form.name);
    const std::string partial = partial_of(task);
    const LayerFiles::Found found = LayerFiles::find(partial, options_text(task));
    if (found.others > 0 && !task.is_forced)
        fail(ExitCode::kInput,
             "{}: contains {} of a stopped run, which had other options or another model: to "
             "continue the stopped run, repeat its command; otherwise give another --output, or "
             "--force to delete these layers",
             printable(partial), counted(found.others, "finished layer"));
    // A run of the same task was killed while it filled OUT: config.json comes last.
    const bool continues = found.own > 0 && !fs::exists(out + "/config.json", missing);
    storage::require_unused(out, task.is_forced || continues);
    if (task.folder->index_path.empty()) {
        storage::require_room_for_model(out);
    } else {
        require_room_for_shards(task);
    }
    storage::require_room_for_config(task.from, out);
}

}  // namespace dslaunch::compress

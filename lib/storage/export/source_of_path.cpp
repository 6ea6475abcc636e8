#include "storage/export/source_of_path.h"

#include <filesystem>

#include "base/error.h"
#include "base/text.h"
#include "storage/checkpoint/checkpoint_reader.h"
#include "storage/checkpoint/checkpoint_store.h"
#include "storage/export/checkpoint_source.h"
#include "storage/export/safetensors_source.h"
#include "storage/huggingface/model_folder.h"

namespace dslaunch::storage {
namespace {

bool is_file(const std::string& path) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(path, ignored);
}

}  // namespace

bool holds_checkpoints(FileTree& tree, const std::string& path) {
    try {
        const CheckpointPlace place = find_checkpoints(tree, path);
        return !place.step_folder.empty() || !CheckpointStore(tree, place.root, 0).list().empty();
    } catch (const Error& error) {  // this is the question, not a failure
        if (error.code() == ExitCode::kCheckpoint) return false;
        throw;
    }
}

std::string choose_checkpoint(FileTree& tree, const std::string& path) {
    const CheckpointPlace place = find_checkpoints(tree, path);
    if (!place.step_folder.empty()) return place.step_folder;
    const std::vector<StoredCheckpoint> all = CheckpointStore(tree, place.root, 0).list();
    for (const StoredCheckpoint& one : all)
        if (one.complete && one.finite) return one.folder;
    if (all.empty())
        fail(ExitCode::kCheckpoint,
             "{}: there is no checkpoint here (looked for step-N folders in {})", path, place.root);
    const StoredCheckpoint& newest = all.front();
    fail(ExitCode::kCheckpoint,
         "{}: none of the {} checkpoints here is complete and finite; the newest, {}: {}. Name one "
         "of them to use it all the same",
         path, all.size(), newest.folder,
         newest.complete ? "holds a NaN or an infinity" : newest.fault);
}

std::unique_ptr<TensorSource> open_checkpoint(FileTree& tree, const std::string& path) {
    return std::make_unique<CheckpointSource>(tree, choose_checkpoint(tree, path));
}

std::unique_ptr<TensorSource> open_tensor_source(FileTree& tree, const std::string& path) {
    if (is_file(path)) {
        if (path.ends_with(".safetensors"))
            return std::make_unique<SafetensorsSource>(path, std::vector<std::string>{path});
        fail(ExitCode::kInput,
             "{}: a file that is no .safetensors; give a checkpoint's folder, a .safetensors file, "
             "or a folder that holds model.safetensors",
             path);
    }
    if (!holds_checkpoints(tree, path)) {
        if (const auto files = safetensors_files_of(path); !files.empty())
            return std::make_unique<SafetensorsSource>(path, files);
    }
    return open_checkpoint(tree, path);
}

}  // namespace dslaunch::storage

#include "launcher/run/run_options.h"

#include <filesystem>

#include "storage/huggingface/model_folder.h"

namespace dslaunch::launcher {

launch::TargetKind target_kind_of(const RunOptions& options) {
    if (options.target.ends_with(".pt") || options.target.ends_with(".pt2"))
        return launch::TargetKind::kModel;
    const std::filesystem::path place =
        std::filesystem::path(options.working_directory) / options.target;
    std::error_code unreadable;
    if (std::filesystem::is_directory(place, unreadable) && storage::model_folder_of(place))
        return launch::TargetKind::kModel;
    if (options.no_python) return launch::TargetKind::kProgram;
    if (options.module || options.target.ends_with(".py")) return launch::TargetKind::kPython;
    return launch::TargetKind::kProgram;
}

}  // namespace dslaunch::launcher

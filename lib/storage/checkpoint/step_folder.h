// Names of folders below the root of a run's checkpoints. Pure.
//   step-N          a checkpoint
//   step-N.tmp-ID   a save under way, or the rest of one
//   step-N.old-ID   the checkpoint that a save of the same step is about to replace, if the file
//                   system cannot exchange two names
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dslaunch::storage {

enum class StepFolderKind { kCheckpoint, kUnfinished, kReplaced };

struct StepFolder {
    int64_t step = 0;
    StepFolderKind kind = StepFolderKind::kCheckpoint;
};

[[nodiscard]] std::string step_folder_name(int64_t step);
// Returns the meaning of the folder NAME; nothing for any other name.
[[nodiscard]] std::optional<StepFolder> parse_step_folder(std::string_view name);

}  // namespace dslaunch::storage

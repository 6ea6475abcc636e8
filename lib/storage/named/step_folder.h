// The names of folders below the root of a run's checkpoints. Pure.
//   step-N          a checkpoint
//   step-N.tmp-ID   a save that is not finished, or what is left of it
//   step-N.old-ID   the checkpoint that a save of the same step is about to replace, if the file
//                   system cannot exchange two names
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dslaunch::storage {

// The three forms of a name above.
enum class StepFolderKind { kCheckpoint, kUnfinished, kReplaced };

// The parts of a name that a reader needs.
struct StepFolder {
    int64_t step = 0;
    StepFolderKind kind = StepFolderKind::kCheckpoint;
};

// Returns the name of STEP's checkpoint.
[[nodiscard]] std::string step_folder_name(int64_t step);
// Returns the step and the kind of the folder NAME; nothing for any other name.
[[nodiscard]] std::optional<StepFolder> parse_step_folder(std::string_view name);

// Returns true if a checkpoint of DeepSpeed, or its folder of a step, contains a file or folder
// NAME that is typical of it.
[[nodiscard]] bool is_deepspeed_entry(std::string_view name, bool is_folder);

}  // namespace dslaunch::storage

// Checks the path that a command writes to: existing content is replaced only with --force. No
// state.
#pragma once

#include <string>

namespace dslaunch::storage {

// The help of --force for a command that writes one file or folder.
inline constexpr const char* kForceHelp = "replace the output if it already exists";

// Throws Error{kInput} naming PATH if PATH has a `~` or a variable that no shell replaced, or if it
// is a device or a pipe, because a new file would replace it. Unless FORCE, also throws if PATH is
// a regular file, or a folder that is not empty.
void require_unused(const std::string& path, bool force);

// Checks PATH as require_unused() does, for a command that writes a single file. Also throws
// Error{kUsage} if PATH names a folder, and Error{kDisk} if the folder of PATH does not exist.
void require_new_file(const std::string& path, bool force);

// Throws Error{kInput}, even with --force, if a model written to PATH would replace INPUT, the
// model or adapter that the command reads. PATH must not be INPUT or a file in the folder INPUT. If
// INPUT is a file model.pt or model.safetensors, PATH must not be its folder.
void require_not_input(const std::string& path, const std::string& input);

// Throws the Error{kInput} of require_unused() for PATH, which exists.
[[noreturn]] void fail_used(const std::string& path);

}  // namespace dslaunch::storage

// Checks the path that a command writes to: existing content is replaced only with --force. No
// state.
#pragma once

#include <string>

namespace dslaunch::storage {

// The help of --force for a command that writes one file or folder.
inline constexpr const char* kForceHelp = "replace the output if it already exists";

// Throws Error{kInput} naming PATH if PATH is a device or a pipe, because a new file would replace
// it. Unless FORCE, also throws if PATH is a regular file, or a folder that is not empty.
void require_unused(const std::string& path, bool force);

// Does the same for a command that writes the file PATH. Throws Error{kUsage} if PATH names a
// folder, and Error{kDisk} if the folder of PATH does not exist.
void require_new_file(const std::string& path, bool force);

// Throws Error{kInput}, even with --force, if a model written to PATH would replace INPUT, the
// model or adapter that the command reads. This is so if PATH is INPUT, a file in the folder INPUT,
// or the folder of a file INPUT that has the name of a result (model.pt, model.safetensors).
void require_not_input(const std::string& path, const std::string& input);

// Throws the Error{kInput} of require_unused() for PATH, which exists.
[[noreturn]] void fail_used(const std::string& path);

}  // namespace dslaunch::storage

// The place that a command writes to: what lies there is replaced only with --force. No state.
#pragma once

#include <string>

namespace dslaunch::storage {

// The help of --force for a command that writes one file or folder.
inline constexpr const char* kForceHelp = "replace what is there already";

// Throws Error{kInput} that names PATH if a regular file is there, or a folder that is not empty,
// and FORCE is false; in any case for a device or a pipe, which a new file would take the place of.
void require_unused(const std::string& path, bool force);

// The same for a command that writes the file PATH; throws Error{kUsage} if PATH names a folder,
// and Error{kDisk} if the folder that it goes to is not there.
void require_new_file(const std::string& path, bool force);

// Throws that Error{kInput} for PATH, which is there.
[[noreturn]] void fail_used(const std::string& path);

}  // namespace dslaunch::storage

// Files that are only appended to. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/fd.h"

namespace dslaunch::launch {

// Opens the file at PATH for reading and appending, and creates it if it does not exist. Follows no
// link. Throws Error{kDisk} that names PATH.
[[nodiscard]] UniqueFd open_for_append(const std::string& path);

// Appends BYTES with as few system calls as possible; one call is usually enough. Returns 0 or a
// negative errno. Does nothing if FILE is not open.
[[nodiscard]] int append(const UniqueFd& file, std::string_view bytes);

// Makes the folder at PATH and its parents. Throws Error{kDisk}, whose message ends with a
// semicolon and ADVICE.
void make_folder_for(const std::string& path, std::string_view advice);

}  // namespace dslaunch::launch

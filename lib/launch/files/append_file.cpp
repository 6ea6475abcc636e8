#include "launch/files/append_file.h"

#include <fcntl.h>

#include <cerrno>

#include "base/error.h"
#include "base/new_files.h"

namespace dslaunch::launch {

UniqueFd open_for_append(const std::string& path) {
    UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!file.valid()) fail(ExitCode::kDisk, "{}: cannot be written: {}", path, errno_text(errno));
    return file;
}

int append(const UniqueFd& file, std::string_view bytes) {
    return file.valid() ? write_full(file.get(), bytes) : 0;
}

void make_folder_for(const std::string& path, std::string_view advice) {
    if (const int status = make_folders(path); status != 0)
        fail(ExitCode::kDisk, "{}: cannot create this folder: {}; {}", path, errno_text(status),
             advice);
}

}  // namespace dslaunch::launch

#include "launch/files/append_file.h"

#include <fcntl.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/new_files.h"

namespace dslaunch::launch {

UniqueFd open_for_append(const std::string& path) {
    UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644));
    const int error_number = errno;
    if (!file.valid())
        fail(ExitCode::kDisk, "{}: cannot be written: {}{}", path, errno_text(error_number),
             error_number == EROFS
                 ? "; mount the file system writable, or give an --output on another disk"
                 : "");
    return file;
}

int append(const UniqueFd& file, std::string_view bytes) {
    return file.valid() ? write_full(file.get(), bytes) : 0;
}

void make_folder_for(const std::string& path, std::string_view advice) {
    const int status = make_folders(path);
    if (status == EEXIST || status == ENOTDIR) {
        std::error_code missing;
        std::filesystem::path above = path;
        while (!std::filesystem::exists(above, missing) && above.has_relative_path())
            above = above.parent_path();
        if (!std::filesystem::is_directory(above, missing))
            fail(ExitCode::kDisk, "{}: cannot create this folder, since {} is a file; {}", path,
                 above.string(), advice);
    }
    if (status != 0)
        fail(ExitCode::kDisk, "{}: cannot create this folder: {}; {}", path, errno_text(status),
             advice);
}

}  // namespace dslaunch::launch

#include "storage/disk/output_place.h"

#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/text.h"
#include "base/text/file_faults.h"

namespace dslaunch::storage {

void require_unused(const std::string& path, bool force) {
    std::error_code unreadable;
    const std::filesystem::path place(path);
    if (std::filesystem::is_other(place, unreadable))
        fail(ExitCode::kInput, "{}: is a device or a pipe; give the name of a file",
             printable(path));
    if (force) return;
    const bool is_file = std::filesystem::is_regular_file(place, unreadable);
    const bool is_filled = std::filesystem::is_directory(place, unreadable) &&
                           !std::filesystem::is_empty(place, unreadable) && !unreadable;
    if (is_file || is_filled) fail_used(path);
}

void require_new_file(const std::string& path, bool force) {
    std::error_code unreadable;
    if (path.ends_with('/') || std::filesystem::is_directory(path, unreadable))
        fail(ExitCode::kUsage, "{}: is a folder; give the name of a file in it", printable(path));
    require_unused(path, force);
    if (const std::string missing = missing_folder_text(path); !missing.empty())
        fail(ExitCode::kDisk, "{}: {}", printable(path), missing);
}

void fail_used(const std::string& path) {
    fail(ExitCode::kInput, "{}: already exists; use --force to replace it, or give another path",
         printable(path));
}

}  // namespace dslaunch::storage

// Makes files and folders. A file that replaces another one is first written under a random name,
// so that nobody can put a link there beforehand. New files and folders survive a power cut, except
// files of replace_file(). Any thread may call the functions.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/fd.h"

namespace dslaunch {

// A file that is being written and will be renamed. It is not deleted by the destructor.
struct TemporaryFile {
    UniqueFd fd;       // for writing; if it is not valid, errno says why
    std::string path;  // PATH.tmp- and 16 random digits
};

// Opens a new, empty file next to PATH, for content that will replace PATH. The new file gets the
// mode of the file at PATH. If there is no file at PATH, the new file gets `MODE & ~umask`. Never
// opens a file or link that already exists.
[[nodiscard]] TemporaryFile open_temporary(const std::string& path, mode_t mode);

// Writes a file through open_temporary(), fsync and rename: PATH has either the old content or the
// new one, never a part of it, even after a power cut. A new file has `MODE & ~umask`. Throws
// Error{kDisk}; its message gives the path, the cause and the number of bytes needed.
void write_file_atomically(const std::string& path, std::string_view content, mode_t mode = 0644);

// Writes a file through open_temporary() and rename, without fsync: a reader finds either the old
// content or the new one, but a power cut may damage the file. A new file has `MODE & ~umask`.
// Returns 0, or a negative errno; the file at PATH then still has its old content.
[[nodiscard]] int replace_file(const std::string& path, std::string_view content, mode_t mode);

// Returns the permissions of the file at PATH; nothing if there is no file.
[[nodiscard]] std::optional<mode_t> mode_of(const std::string& path);

// Makes FOLDER and its missing parents with `MODE & ~umask`, and flushes the parent of each new
// folder. Returns 0, or the errno of the step that failed.
[[nodiscard]] int make_folders(const std::string& folder, mode_t mode = 0777);

// Flushes the names in FOLDER to the disk. Returns 0, or an errno.
[[nodiscard]] int flush_folder(const std::string& folder);

}  // namespace dslaunch

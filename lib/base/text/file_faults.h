// Faults of the files that people name: a mistyped path, or something else in place of a file that
// was never downloaded. No state; may read a folder.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch {

// Returns "; did you mean `PATH`?" with a similar name from PATH's folder if nothing is at PATH;
// else "".
[[nodiscard]] std::string near_file_text(const std::string& path);

// Returns "the folder FOLDER is not there; make it: mkdir -p FOLDER" if the folder for a new file
// PATH does not exist; else "".
[[nodiscard]] std::string missing_folder_text(const std::string& path);

// Returns what a file that begins with CONTENT is instead of a download or a copy (nothing, zero
// bytes, a pointer of Git LFS, a server's error, a web page), and what to do; "" for any other
// content.
[[nodiscard]] std::string download_fault(std::string_view content);

// Returns the same for the file at PATH, also if it is a link to a missing file. "" if nothing is
// at PATH.
[[nodiscard]] std::string download_fault_at(const std::string& path);

}  // namespace dslaunch

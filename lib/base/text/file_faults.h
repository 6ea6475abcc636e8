// Finds out why a file that a user named is not usable: a mistyped path, or something else in place
// of a file that was never downloaded. No state; may read a folder.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch {

// Returns "; did you mean `PATH`?" if PATH does not exist, but a path does that differs from it by
// similar names of the file or of folders; "; it is a link to PLACE, which does not exist" if PATH
// is such a link; else "".
[[nodiscard]] std::string near_file_text(const std::string& path);

// Returns "the folder FOLDER is not there; make it: mkdir -p FOLDER" if the folder in which a new
// file PATH is to be made does not exist; else "".
[[nodiscard]] std::string missing_folder_text(const std::string& path);

// Returns what is wrong with a failed download or copy, and what to do. CONTENT is the beginning of
// the file. A failed download is empty, or has zero bytes, a pointer of Git LFS, a server's error
// or a web page. Returns "" for any other content.
[[nodiscard]] std::string download_fault(std::string_view content);

// Returns the same for the file at PATH. If PATH is a link to a missing file, the text says so. ""
// if nothing is at PATH.
[[nodiscard]] std::string download_fault_at(const std::string& path);

}  // namespace dslaunch

// Faults of the files that people name: a mistyped path, and what stands in the place of a file
// that was never downloaded. No state; may read a folder.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch {

// Returns "; did you mean `PATH`?" with the entry of PATH's folder whose name is near to PATH's
// own, where nothing is at PATH; else "".
[[nodiscard]] std::string near_file_text(const std::string& path);

// Returns "the folder FOLDER is not there; make it: mkdir -p FOLDER" where the folder in which a
// file PATH is to be written does not exist; else "".
[[nodiscard]] std::string missing_folder_text(const std::string& path);

enum class Download { kDone, kLfsPointer, kWebPage };

// Says whether a file with this CONTENT is a pointer of Git LFS or the page of a failed download.
[[nodiscard]] Download download_of(std::string_view content);

// Says what the file is and what to do. REQUIRES: not kDone.
[[nodiscard]] std::string why_not_downloaded(Download download);

}  // namespace dslaunch

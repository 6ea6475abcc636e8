// Finds out why a file that a user named is not usable: a mistyped path, or something else in place
// of a file that was never downloaded. No state; may read a folder.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace dslaunch {

// Returns the path of similar names of file and folders that exists, if PATH does not exist; "" if
// there is none. Names are similar if few letters, only small and capital letters, or only an
// ending differ. If FITS is given, the result satisfies it, and may also be a longer name that
// begins with PATH's name: FITS says that the result is of the kind that was meant.
[[nodiscard]] std::string near_file(const std::string& path,
                                    const std::function<bool(const std::string&)>& fits = nullptr);

// If PATH begins with `~` or a `$NAME` that a shell would replace, returns that only a shell does
// so, and the path that is meant; else "".
[[nodiscard]] std::string unexpanded_text(const std::string& path);

// Returns "; did you mean `OTHER`?" with OTHER from near_file(), or from PATH without the blanks at
// the ends of its name. Returns "; " and unexpanded_text() if a part of PATH needs a shell. Returns
// "; it is a link to PLACE, which does not exist" if PATH is a link to a missing file. Otherwise
// returns "".
[[nodiscard]] std::string near_file_text(const std::string& path);

// Returns the name of a file or folder in FOLDER that FIRST and the first of WORDS make when they
// are joined by blanks: a shell makes several words of a name without quotes. Returns "" if there
// is none.
[[nodiscard]] std::string split_name(const std::string& first, std::span<const std::string> words,
                                     const std::string& folder);

// Returns "the folder FOLDER does not exist; make it: mkdir -p FOLDER" if the folder in which a new
// file PATH is to be made does not exist; else "".
[[nodiscard]] std::string missing_folder_text(const std::string& path);

// Returns what is wrong with a failed download or copy, and what to do. CONTENT is the beginning of
// the file. Recognizes an empty file, a file of zero bytes only, a pointer of Git LFS, a server's
// error message and a web page. Returns "" for any other content.
[[nodiscard]] std::string download_fault(std::string_view content);

// Returns the result of download_fault() for the file at PATH. If PATH is a link to a missing file,
// the text says so. Returns "" if nothing is at PATH.
[[nodiscard]] std::string download_fault_at(const std::string& path);

}  // namespace dslaunch

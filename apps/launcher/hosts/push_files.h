// Lists the files that a push or a bundle contains: the user's files, or the installation of
// dslaunch.
#pragma once

#include <string>
#include <vector>

#include "launch/push/push_sender.h"

namespace dslaunch::launcher {

// A file of the user, with its name on the hosts.
struct NamedFile {
    std::string local_path;  // absolute
    std::string below;       // name below the target folder: NAME, or FOLDER/…/NAME
};

// Returns FILE itself or, if it is a folder, all files below it, sorted. Throws Error{kInput} if
// FILE is missing or contains something that is not a plain file.
[[nodiscard]] std::vector<NamedFile> list_files(const std::string& file);

// Returns PATH as an absolute path without `.`, `..` and a slash at the end.
[[nodiscard]] std::string absolute_path(const std::string& path);

// Returns installation_files(), and prints on stderr the names of the files that it leaves out.
[[nodiscard]] std::vector<launch::PushFile> list_installation();

// A new folder of this process below $TMPDIR. The destructor removes it with its contents.
class ScratchFolder {
  public:
    ScratchFolder();
    ScratchFolder(const ScratchFolder&) = delete;
    ScratchFolder& operator=(const ScratchFolder&) = delete;
    ~ScratchFolder();
    // Returns the absolute path, without a slash at the end.
    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    std::string path_;
};

}  // namespace dslaunch::launcher

// The files of a push or a bundle: those that the user named, or the installation of dslaunch.
#pragma once

#include <string>
#include <vector>

#include "launch/push/push_sender.h"

namespace dslaunch::launcher {

struct NamedFile {
    std::string local_path;  // absolute
    std::string below;       // name below the target folder: NAME, or FOLDER/…/NAME
};

// FILE, or if it is a folder every file below it, sorted. Throws Error{kInput} if FILE is missing,
// or something in it is no plain file.
[[nodiscard]] std::vector<NamedFile> list_files(const std::string& file);

// The absolute form of PATH without `.`, `..` and a slash at the end.
[[nodiscard]] std::string absolute_path(const std::string& path);

// The result of installation_files(); files that it leaves out are named on stderr.
[[nodiscard]] std::vector<launch::PushFile> list_installation();

// A new folder of this process's own below $TMPDIR, removed with everything in it at the end.
class ScratchFolder {
  public:
    ScratchFolder();
    ScratchFolder(const ScratchFolder&) = delete;
    ScratchFolder& operator=(const ScratchFolder&) = delete;
    ~ScratchFolder();
    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    std::string path_;
};

}  // namespace dslaunch::launcher

// The files of a push or a bundle: the user's files, or the installation of dslaunch.
#pragma once

#include <string>
#include <vector>

#include "launch/push/push_sender.h"

namespace dslaunch::launcher {

struct NamedFile {
    std::string local_path;  // absolute
    std::string below;       // name below the target folder: NAME, or FOLDER/…/NAME
};

// Returns FILE, or if it is a folder every file below it, sorted. Throws Error{kInput} if FILE is
// missing, or something in it is not a plain file.
[[nodiscard]] std::vector<NamedFile> list_files(const std::string& file);

// Returns the absolute form of PATH without `.`, `..` and a slash at the end.
[[nodiscard]] std::string absolute_path(const std::string& path);

// Returns installation_files(); names on stderr the files that it leaves out.
[[nodiscard]] std::vector<launch::PushFile> list_installation();

// A new folder of this process below $TMPDIR, removed with its content at the end.
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

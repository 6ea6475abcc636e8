// Which files a push or a bundle is about: what the user named, or what dslaunch consists of.
#pragma once

#include <string>
#include <vector>

#include "launch/push/push_sender.h"

namespace dslaunch::launcher {

struct NamedFile {
    std::string local_path;  // absolute
    std::string below;       // its name below the folder that it goes to: NAME, or FOLDER/…/NAME
};

// FILE, or every file below it when it is a folder, sorted. Throws Error{kInput}: it is missing, or
// something in it is no plain file.
[[nodiscard]] std::vector<NamedFile> list_files(const std::string& file);

// The absolute form of PATH without `.`, `..` and a slash at the end.
[[nodiscard]] std::string absolute_path(const std::string& path);

// installation_files(); what it leaves out is said on stderr.
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

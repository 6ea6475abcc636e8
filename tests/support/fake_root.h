// A folder that takes the place of / in tests of code that reads /sys and /proc.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "support/job_process.h"

namespace dslaunch::test {

class FakeRoot {
  public:
    [[nodiscard]] const std::string& path() const { return folder_.path(); }
    // Writes TEXT to the file NAME, which begins with a slash. Makes the folders of NAME.
    void write(const std::string& name, const std::string& text) const {
        const std::filesystem::path file = folder_.path() + name;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file) << text;
    }

  private:
    TemporaryFolder folder_;
};

}  // namespace dslaunch::test

// A folder for the files of one test.
#pragma once

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace dslaunch::test {

// A folder of one test, which is removed at the end of the test.
class TemporaryFolder {
  public:
    // BELOW is the folder in which it is made: "/dev/shm" if a test has many small files that need
    // no disk.
    explicit TemporaryFolder(const std::string& below = "/tmp")
        : path_(below + "/dslaunch-test-XXXXXX") {
        if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no folder in " + below);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    ~TemporaryFolder() {
        const int status = std::system(("rm -rf '" + path_ + "'").c_str());
        static_cast<void>(status);
    }
    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] std::string read(const std::string& name) const {
        std::ifstream file(path_ + "/" + name);
        return {std::istreambuf_iterator<char>(file), {}};
    }

  private:
    std::string path_;
};

}  // namespace dslaunch::test

// A whole file mapped read-only. Owns the mapping; views into it live as long as the object.
// A file that another process shortens while it is mapped raises SIGBUS on access: inputs must not
// be rewritten in place during a run (replace them by rename, which keeps the mapped inode).
// Threads: reading from any thread is safe.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace dslaunch {

class MappedFile {
  public:
    // Throws Error{kInput} naming PATH when it is missing, not a regular file, or cannot be mapped.
    explicit MappedFile(const std::string& path);
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    ~MappedFile();

    [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    std::string path_;
    std::span<const std::byte> bytes_;
};

}  // namespace dslaunch

// A whole file mapped. Owns the mapping; views into it live as long as the object. Read-only
// mappings are for looking. Copy-on-write ones are memory like any other: pages that nobody wrote
// stay the file's and are shared with every process that maps it. A file that another process
// shortens while it is mapped ends this one on access, by name (storage/files/mapped_fault.h), and
// one written in place changes under its readers: do not rewrite inputs during a run (replace them
// by rename, which keeps the mapped inode). Threads: reading from any thread is safe, and so is
// giving back pages that no thread is writing.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/bytes.h"

namespace dslaunch::storage {

enum class MapMode { kReadOnly, kCopyOnWrite };

class MappedFile {
  public:
    // Throws Error{kInput} naming PATH if it is missing, not a regular file, or cannot be mapped.
    explicit MappedFile(const std::string& path, MapMode mode = MapMode::kReadOnly);
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    ~MappedFile();

    [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
    [[nodiscard]] const std::string& path() const { return path_; }

    // Gives the whole pages inside PART back to the system, except written ones; the next access
    // reads the file again. Returns the bytes given back, 0 if the system does not say which pages
    // were written. REQUIRES: PART lies in bytes(); nobody writes to it meanwhile.
    Bytes release_unwritten(std::span<const std::byte> part) const;
    // Gives back the written pages too: their changes are lost.
    void discard(std::span<const std::byte> part) const;

  private:
    std::string path_;
    std::span<const std::byte> bytes_;
};

}  // namespace dslaunch::storage

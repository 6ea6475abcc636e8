// A file mapped as a whole. Owns the mapping; views into it are valid as long as the object lives.
// A read-only mapping can only be read. A copy-on-write mapping can be written like other memory;
// pages that were not written are shared by all processes that map the file. Other processes must
// not change the file meanwhile. If one shortens the file, the next access to the missing part ends
// this process with a message (storage/files/mapped_fault.h). If one writes into the file, this
// process sees the change. Replacing a file by rename is safe, because the mapping keeps the old
// file. Threads: any thread may read. Any thread may release pages to which no thread is writing.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/bytes.h"

namespace dslaunch::storage {

// The two kinds of mapping.
enum class MapMode { kReadOnly, kCopyOnWrite };

// An open mapping.
class MappedFile {
  public:
    // Throws Error{kInput} naming PATH if the file is missing, is not a regular file, or cannot be
    // mapped.
    explicit MappedFile(const std::string& path, MapMode mode = MapMode::kReadOnly);
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    ~MappedFile();

    // Return the mapping, and the path that the constructor got.
    [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
    [[nodiscard]] const std::string& path() const { return path_; }

    // Gives the whole pages inside PART back to the system, except written ones; the next access
    // reads them from the file again. Returns the number of bytes given back; 0 if the system does
    // not say which pages were written. REQUIRES: PART is inside bytes(); no one writes to it
    // meanwhile.
    Bytes release_unwritten(std::span<const std::byte> part) const;
    // Gives back the written pages too; their changes are lost.
    void discard(std::span<const std::byte> part) const;

  private:
    std::string path_;
    std::span<const std::byte> bytes_;
};

}  // namespace dslaunch::storage

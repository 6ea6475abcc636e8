// A whole file mapped. Owns the mapping; views into it live as long as the object. Read-only
// mappings are for looking; copy-on-write ones are memory like any other, of which the pages that
// nobody wrote stay the file's and are shared with every process that maps it.
// A file that another process shortens while it is mapped ends this one on access, by name
// (storage/files/mapped_fault.h), and one written in place changes under its readers: inputs must
// not be rewritten during a run (replace them by rename, which keeps the mapped inode). Threads:
// reading from any thread is safe, so is giving pages back that no thread is writing.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/bytes.h"

namespace dslaunch::storage {

enum class MapMode { kReadOnly, kCopyOnWrite };

class MappedFile {
  public:
    // Throws Error{kInput} naming PATH when it is missing, not a regular file, or cannot be mapped.
    explicit MappedFile(const std::string& path, MapMode mode = MapMode::kReadOnly);
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    ~MappedFile();

    [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
    [[nodiscard]] const std::string& path() const { return path_; }

    // Gives the whole pages inside PART back to the system, all but those that were written; the
    // next access reads the file again. Returns what was given back; 0 where the system does not
    // say which pages were written. REQUIRES: PART lies in bytes(); nobody writes to it meanwhile.
    Bytes release_unwritten(std::span<const std::byte> part) const;
    // Gives back the written pages too: what was written to them is lost.
    void discard(std::span<const std::byte> part) const;

  private:
    std::string path_;
    std::span<const std::byte> bytes_;
};

}  // namespace dslaunch::storage

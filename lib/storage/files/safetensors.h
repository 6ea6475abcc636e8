// Strict reader and atomic writer of .safetensors files: an 8-byte header length, a JSON header,
// then the tensors' bytes. Views live as long as the SafetensorsFile (a mapping; see mapped_file.h
// about files that shrink). Threads: const, any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/kinds/dtype.h"
#include "storage/files/atomic_file.h"
#include "storage/files/mapped_file.h"

namespace dslaunch::storage {

struct SafetensorsEntry {
    std::string name;
    DType dtype = DType::kF32;
    std::vector<int64_t> shape;        // [] is a scalar
    std::span<const std::byte> bytes;  // row-major, little-endian; 1-byte aligned at worst
};

struct SafetensorsContent {
    std::vector<SafetensorsEntry> entries;  // they come in the order of their bytes; views into the
                                            // file
    std::map<std::string, std::string> metadata;
};

// Throws Error{kInput} naming PATH and the tensor unless the header is well formed, keys are unique
// and the tensors' ranges cover the data without hole or overlap. BYTES: the whole file.
[[nodiscard]] SafetensorsContent parse_safetensors(const std::string& path,
                                                   std::span<const std::byte> bytes);

class SafetensorsFile {
  public:
    // Throws Error{kInput} as MappedFile and parse_safetensors do.
    explicit SafetensorsFile(const std::string& path);

    // Returns the entries in the order of their bytes in the file.
    [[nodiscard]] const std::vector<SafetensorsEntry>& entries() const { return content_.entries; }
    // Returns null if no entry has that name.
    [[nodiscard]] const SafetensorsEntry* find(std::string_view name) const;
    [[nodiscard]] const std::map<std::string, std::string>& metadata() const {
        return content_.metadata;
    }
    // See MappedFile::discard. PART of an entry's bytes is reread from the disk if it is needed.
    void discard(std::span<const std::byte> part) const { file_.discard(part); }

  private:
    MappedFile file_;
    SafetensorsContent content_;
};

// Writes a file tensor by tensor, in any order: PATH is the old file or the whole new one, durably
// (see atomic_file.h). Blocks on the disk. Throws Error{kDisk} with path, cause, bytes needed and,
// on a full disk, bytes free. One thread.
class SafetensorsWriter {
  public:
    // ENTRIES: in the order of their bytes in the file; `bytes` are not looked at. REQUIRES: unique
    // names.
    SafetensorsWriter(const std::string& path, std::span<const SafetensorsEntry> entries,
                      const std::map<std::string, std::string>& metadata = {});

    // REQUIRES: BYTES is as long as shape and dtype of entry INDEX say; each is written once.
    void write(size_t index, std::span<const std::byte> bytes);
    // Writes the next bytes of entry INDEX, in as many parts as the caller likes.
    void append(size_t index, std::span<const std::byte> bytes);
    // Returns where in the file the bytes of entry INDEX begin.
    [[nodiscard]] int64_t offset(size_t index) const { return layout_.places[index].begin; }
    // REQUIRES: every entry is written.
    void commit();

  private:
    struct Place {
        int64_t begin = 0;
        int64_t bytes = 0;
        int64_t bytes_written = 0;
    };
    struct Layout {
        std::string header;
        std::vector<Place> places;
        int64_t file_bytes = 0;
    };
    [[nodiscard]] static Layout layout_of(std::span<const SafetensorsEntry> entries,
                                          const std::map<std::string, std::string>& metadata);

    Layout layout_;
    AtomicFile file_;
};

}  // namespace dslaunch::storage

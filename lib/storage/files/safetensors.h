// Strict reader and atomic writer of .safetensors files: an 8-byte header length, a JSON header,
// then the tensors' bytes. Views are valid as long as the SafetensorsFile lives (a mapping; see
// mapped_file.h about files that shrink). Threads: const, any.
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

// A tensor of a file, as a view of its bytes.
struct SafetensorsEntry {
    std::string name;
    DType dtype = DType::kF32;
    std::vector<int64_t> shape;        // [] is a scalar
    std::span<const std::byte> bytes;  // row-major, little-endian; at any address
};

// Returns number INDEX of ENTRY. REQUIRES: it is F32, BF16 or F16.
[[nodiscard]] float number_at(const SafetensorsEntry& entry, int64_t index);

// All tensors of a file.
struct SafetensorsContent {
    std::vector<SafetensorsEntry> entries;  // views into the file, in the order of their bytes
    std::map<std::string, std::string> metadata;
};

// Reads a .safetensors file. Throws Error{kInput} naming PATH and the tensor unless the header is
// well formed, keys are unique and the tensors' ranges cover the data without gap or overlap. BYTES
// must be the whole file.
[[nodiscard]] SafetensorsContent parse_safetensors(const std::string& path,
                                                   std::span<const std::byte> bytes);

// A mapped file and its tensors.
class SafetensorsFile {
  public:
    // Throws what MappedFile and parse_safetensors() throw.
    explicit SafetensorsFile(const std::string& path);

    // Returns the entries in the order of their bytes in the file.
    [[nodiscard]] const std::vector<SafetensorsEntry>& entries() const { return content_.entries; }
    // Returns null if no entry has that name.
    [[nodiscard]] const SafetensorsEntry* find(std::string_view name) const;
    // Returns the texts that the file stores beside its tensors.
    [[nodiscard]] const std::map<std::string, std::string>& metadata() const {
        return content_.metadata;
    }
    // Frees the memory of PART, which is inside an entry's bytes, as MappedFile::discard() does.
    // Later accesses read PART from the disk again.
    void discard(std::span<const std::byte> part) const { file_.discard(part); }

  private:
    MappedFile file_;
    SafetensorsContent content_;
};

// Writes a file tensor by tensor, in any order. At any moment PATH is the old file or the complete
// new one, durably (see atomic_file.h). Blocks on the disk. Throws Error{kDisk} with path, cause,
// bytes needed and, on a full disk, bytes free. One thread.
class SafetensorsWriter {
  public:
    // ENTRIES must be in the order that their bytes will have in the file; `bytes` in them is
    // ignored. REQUIRES: unique names.
    SafetensorsWriter(const std::string& path, std::span<const SafetensorsEntry> entries,
                      const std::map<std::string, std::string>& metadata = {});

    // Writes all bytes of entry INDEX. REQUIRES: BYTES has the length given by the entry's shape
    // and dtype; each entry is written once.
    void write(size_t index, std::span<const std::byte> bytes);
    // Writes the next bytes of entry INDEX, in parts of any size.
    void append(size_t index, std::span<const std::byte> bytes);
    // Returns the offset in the file at which the bytes of entry INDEX begin.
    [[nodiscard]] int64_t offset(size_t index) const { return layout_.places[index].begin; }
    // Completes the file. REQUIRES: every entry is written.
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

// The records of a mapped archive as the memory of tensors. Data path: mapped file -> [here] ->
// mapped_archive.h. One thread.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "storage/files/mapped_file.h"
#include "storage/files/zip_archive.h"

namespace dslaunch::graph {

// Returns newly allocated memory with a copy of BYTES.
[[nodiscard]] at::DataPtr copied_data(std::span<const std::byte> bytes);

// The records of an archive, which can be used as the storages of tensors.
class MappedRecords {
  public:
    // Throws Error{kInput} as parse_zip() does. FILE is mapped copy-on-write.
    explicit MappedRecords(std::shared_ptr<const storage::MappedFile> file);

    // Returns null if no record has this name.
    [[nodiscard]] const storage::ZipRecord* find(std::string_view name) const;
    // Returns all records. They live as long as this.
    [[nodiscard]] const storage::ZipDirectory& directory() const { return directory_; }

    // Returns the bytes of RECORD as a storage's memory. Returns nothing if the caller must copy
    // RECORD (logged at level debug): it is compressed, not aligned to 64 bytes, or was lent
    // before.
    [[nodiscard]] std::optional<at::DataPtr> lend(const storage::ZipRecord& record);

  private:
    std::shared_ptr<const storage::MappedFile> file_;
    storage::ZipDirectory directory_;
    std::unordered_map<std::string_view, const storage::ZipRecord*> records_;
    std::unordered_set<const void*> lent_;  // the first bytes of the records in use
};

}  // namespace dslaunch::graph

// The records of an archive of PyTorch's as storages of tensors: they lie in a copy-on-write
// mapping of the file and give their pages back when their last tensor is destroyed. Data path: zip
// -> [here] -> mapped_archive.h, exported_archive.h. One thread at a time.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "storage/files/mapped_file.h"
#include "storage/files/zip_archive.h"

namespace dslaunch::graph {

class MappedRecords {
  public:
    // Throws Error{kInput} as parse_zip() does. FILE is mapped copy-on-write.
    explicit MappedRecords(std::shared_ptr<const storage::MappedFile> file);

    // Null: no record has this name.
    [[nodiscard]] const storage::ZipRecord* find(std::string_view name) const;
    [[nodiscard]] const storage::ZipDirectory& directory() const { return directory_; }

    // The record as a storage's memory. Nothing where it must be copied (logged at level debug): it
    // is compressed, not aligned to 64 bytes, or lent already.
    [[nodiscard]] std::optional<at::DataPtr> lend(const storage::ZipRecord& record);

  private:
    std::shared_ptr<const storage::MappedFile> file_;
    storage::ZipDirectory directory_;
    std::unordered_map<std::string_view, const storage::ZipRecord*> records_;
    std::unordered_set<const void*> lent_;  // their begins
};

}  // namespace dslaunch::graph

// A file of torch.save: one pickle and the storages of its tensors, mapped. Nothing in it is
// executed. Threads: const, any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/kinds/dtype.h"
#include "storage/files/zip_archive.h"
#include "storage/pickle/restricted_unpickler.h"

namespace dslaunch::storage {

struct TorchTensor {
    DType dtype = DType::kF32;
    std::vector<int64_t> shape;
    std::span<const std::byte> bytes;  // row-major, in the mapping
    std::string storage;               // key of the storage in the file, the same for tied tensors
    int64_t begin = 0;                 // first element in the storage
    int64_t storage_numel = 0;

    [[nodiscard]] int64_t numel() const { return std::ssize(bytes) / dtype_bytes(dtype); }
};

class TorchFile {
  public:
    // Throws Error{kInput} naming PATH if it is not a zip (and how to convert a file of
    // torch.save's old form), was written on a big-endian machine, or has a pickle that is refused.
    explicit TorchFile(const std::string& path);

    [[nodiscard]] const std::string& path() const { return archive_.path(); }
    [[nodiscard]] const PickleValue& root() const { return pickle_.root(); }
    // Returns VALUE, of this file's pickle, as a tensor. Throws Error{kInput} naming WHAT if it is
    // null, not a tensor, not contiguous, or beyond its storage or file.
    [[nodiscard]] TorchTensor tensor(const PickleValue* value, const std::string& what) const;

  private:
    ZipArchive archive_;
    Pickle pickle_;
};

}  // namespace dslaunch::storage

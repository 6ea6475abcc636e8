// A file that torch.save wrote: one pickle and the storages of its tensors, mapped. Nothing in it
// is executed. Threads: const, any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/kinds/dtype.h"
#include "storage/files/zip_archive.h"
#include "storage/pickle/pickle.h"

namespace dslaunch::storage {

// A tensor of the file, as a view of its bytes.
struct TorchTensor {
    DType dtype = DType::kF32;
    std::vector<int64_t> shape;
    std::span<const std::byte> bytes;  // row-major, in the mapping
    std::string storage;               // key of the storage in the file, the same for tied tensors
    int64_t begin = 0;                 // the tensor's first element in the storage
    int64_t storage_numel = 0;

    // Returns the number of elements.
    [[nodiscard]] int64_t numel() const { return std::ssize(bytes) / dtype_bytes(dtype); }
};

// A mapped file and the values of its pickle.
class TorchFile {
  public:
    // Throws Error{kInput} naming PATH if the file is not a zip (the message says how to convert a
    // file of torch.save's old form), was written on a big-endian machine, or contains a pickle
    // that is refused.
    explicit TorchFile(const std::string& path);

    // Return the path that the constructor got, and the value that torch.save was given.
    [[nodiscard]] const std::string& path() const { return archive_.path(); }
    [[nodiscard]] const PickleValue& root() const { return pickle_.root(); }
    // Returns VALUE, a value of this file's pickle, as a tensor. Throws Error{kInput} naming WHAT
    // if VALUE is null, is not a tensor, is not contiguous, or extends beyond its storage or file.
    [[nodiscard]] TorchTensor tensor(const PickleValue* value, const std::string& what) const;

  private:
    ZipArchive archive_;
    Pickle pickle_;
};

}  // namespace dslaunch::storage

// Reader of NumPy's .npy files: one array of plain numbers, C order, little-endian, format versions
// 1 to 3. Views live as long as the NpyFile (see mapped_file.h about files that shrink). Threads:
// const, any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/kinds/dtype.h"
#include "storage/files/mapped_file.h"

namespace dslaunch::storage {

struct NpyArray {
    DType dtype = DType::kF32;
    std::vector<int64_t> shape;        // [] is a scalar
    std::span<const std::byte> bytes;  // row-major, little-endian; aligned as the writer padded
};

// Throws Error{kInput} that begins with PATH and says what is not accepted (Fortran order, Python
// objects, big-endian, text, complex, records, …) or damaged. BYTES: the whole file, with nothing
// left over.
[[nodiscard]] NpyArray parse_npy(const std::string& path, std::span<const std::byte> bytes);

class NpyFile {
  public:
    // Throws Error{kInput} as MappedFile and parse_npy do.
    explicit NpyFile(const std::string& path)
        : file_(path), array_(parse_npy(path, file_.bytes())) {}

    [[nodiscard]] const NpyArray& array() const { return array_; }

  private:
    MappedFile file_;
    NpyArray array_;
};

}  // namespace dslaunch::storage

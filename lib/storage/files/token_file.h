// A file of little-endian tokens, mapped, for training on text. Threads: const, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/kinds/dtype.h"
#include "storage/files/mapped_file.h"

namespace dslaunch::storage {

class TokenFile {
  public:
    struct Place {
        int64_t index = 0;
        int64_t token = 0;
    };

    // DTYPE: kU16, kU32, kI32 or kI64 (else a bug). Throws Error{kInput} if the file is missing or
    // empty, its length is not a multiple of the token's size, or its bytes are numbers of another
    // width: then every second number, or three of four, would be 0 or nearly so as DTYPE.
    TokenFile(const std::string& path, DType dtype);

    [[nodiscard]] int64_t token_count() const { return token_count_; }
    [[nodiscard]] const std::string& path() const { return file_.path(); }

    // Reads tokens [first, first + into.size()) as int64. REQUIRES: the range lies in the file.
    void read(int64_t first, std::span<int64_t> into) const;

    // Returns the first token that is negative or >= VOCABULARY, or nothing. Reads the whole file.
    [[nodiscard]] std::optional<Place> first_outside(int64_t vocabulary) const;

  private:
    void check_width() const;

    MappedFile file_;
    DType dtype_;
    int64_t token_count_ = 0;
};

}  // namespace dslaunch::storage

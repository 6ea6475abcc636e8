// Rows on the disk until their number is known, which the header of a .safetensors file has. Data
// path: row_packer.h, pair_maker.h -> [here] -> a file of rows. Blocks on the disk; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "text/rows/row_packer.h"

namespace dslaunch::worker {

// Opens a file without a name in the folder of BESIDE. Throws Error{kDisk}.
[[nodiscard]] UniqueFd open_spool(const std::string& beside);
// Appends BYTES to the file FD, which PATH names in messages. Throws Error{kDisk}.
void write_spool(int fd, std::string_view bytes, const std::string& path);

class RowSpool {
  public:
    // Rows wait in a file without a name, in the folder of BESIDE. All functions throw
    // Error{kDisk}.
    RowSpool(const std::string& beside, bool with_documents);

    // REQUIRES: rows of one length.
    void add(const text::TokenRow& row);

    struct Shape {
        int64_t length = 0;
        int64_t rows_each = 1;  // of a sample
    };
    // Writes all rows as the columns of PATH: [rows, length], or with several rows to a sample
    // [samples, rows_each, length].
    void write(const std::string& path, const Shape& rows,
               const std::map<std::string, std::string>& metadata);

  private:
    void flush();

    struct Column {
        const char* name;
        std::vector<int32_t> text::TokenRow::*of_row;
    };
    std::vector<Column> columns_ = {{"tokens", &text::TokenRow::tokens},
                                    {"targets", &text::TokenRow::targets}};
    UniqueFd file_;
    std::string path_;
    std::string buffer_;
    int64_t rows_ = 0;
};

}  // namespace dslaunch::worker

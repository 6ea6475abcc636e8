// Rows on the disk until their number is known, which the header of a .safetensors file has. Data
// path: row_packer.h, pair_maker.h -> [here] -> a file of rows. Blocks on the disk; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"
#include "tokens/rows/row_packer.h"

namespace dslaunch::worker {

class RowSpool {
  public:
    // Rows wait in a file without a name, in the folder of BESIDE. All functions throw
    // Error{kDisk}.
    RowSpool(const std::string& beside, bool with_documents);

    // REQUIRES: rows of one length.
    void add(const tokens::TokenRow& row);

    // Writes all rows as the columns of PATH: [rows, LENGTH], or with several rows to a sample
    // [samples, ROWS_EACH, LENGTH].
    void write(const std::string& path, int64_t length, int64_t rows_each);

  private:
    void flush();

    struct Column {
        const char* name;
        std::vector<int32_t> tokens::TokenRow::*of_row;
    };
    std::vector<Column> columns_ = {{"tokens", &tokens::TokenRow::tokens},
                                    {"targets", &tokens::TokenRow::targets}};
    UniqueFd file_;
    std::string path_;
    std::string buffer_;
    int64_t rows_ = 0;
};

}  // namespace dslaunch::worker

// Documents of tokens on the disk until the longest one is known, by which the length of rows is
// chosen. Data path: encode_sample.h -> [here] -> row_packer.h, pair_maker.h. Blocks on the disk;
// one thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/fd.h"
#include "text/rows/encode_sample.h"

namespace dslaunch::worker {

class DocumentSpool {
  public:
    // Documents wait in a file without a name, in the folder of BESIDE. All functions throw
    // Error{kDisk}.
    explicit DocumentSpool(const std::string& beside);

    void add(const text::TokenDocument& document);
    // The tokens of the longest document so far.
    [[nodiscard]] int64_t longest() const { return longest_; }

    // Ends adding.
    void begin_reading();
    // Makes DOCUMENT the next one, in the order in which they were added; false: that was all.
    [[nodiscard]] bool next(text::TokenDocument& document);

  private:
    void flush();
    void read(void* into, size_t bytes);

    UniqueFd file_;
    std::string path_;
    std::string buffer_;
    size_t at_ = 0;  // in buffer_, while reading
    int64_t longest_ = 0;
    int64_t added_ = 0, taken_ = 0;
};

}  // namespace dslaunch::worker

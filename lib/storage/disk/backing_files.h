// The files on disk that store the bytes of a block file. They are open and of equal length. The
// range of bytes is distributed over them in stripes: stripe s is in file number `s % files`. The
// code that created them owns them (swap_files.h); engines only use the descriptors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/fd.h"

namespace dslaunch::storage {

// The distribution of the bytes over the files.
struct StripeLayout {
    int files = 1;
    Bytes stripe;  // a multiple of kBlockAlignment; not read when there is one file
};

// The place of a byte in one of the files.
struct StripePlace {
    int file = 0;
    int64_t offset_bytes = 0;  // place of the byte in that file
    int64_t run_bytes = 0;     // number of contiguous bytes in that file from there on
};

// Returns the file that stores the byte at OFFSET_BYTES, and the byte's offset in that file.
// REQUIRES: offset_bytes >= 0.
[[nodiscard]] StripePlace stripe_place(const StripeLayout& layout, int64_t offset_bytes);

// Returns the length that each file needs, in whole stripes, for CAPACITY in all files together.
[[nodiscard]] Bytes stripe_file_bytes(const StripeLayout& layout, Bytes capacity);

// An open file.
struct BackingFile {
    std::string path;
    UniqueFd fd;             // open for reading and writing
    bool is_direct = false;  // opened with O_DIRECT
};

// All files of one block file.
struct BackingFiles {
    std::vector<BackingFile> files;  // there is at least one
    StripeLayout layout;
    Bytes capacity;  // of all files together; one file has stripe_file_bytes()

    // Returns the path of the file that stores the byte at OFFSET_BYTES.
    [[nodiscard]] const std::string& path_at(int64_t offset_bytes) const {
        return files[stripe_place(layout, offset_bytes).file].path;
    }
};

}  // namespace dslaunch::storage

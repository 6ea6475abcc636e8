// The files on disk under a block file. They are open and of equal length, and one range of bytes
// is laid over them in stripes: stripe s lies in file s mod files. Their maker owns them
// (swap_files.h); engines only use the descriptors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/fd.h"

namespace dslaunch::storage {

struct StripeLayout {
    int files = 1;
    Bytes stripe;  // a multiple of kBlockAlignment; not read when there is one file
};

struct StripePlace {
    int file = 0;
    int64_t offset_bytes = 0;  // place of the byte in that file
    int64_t run_bytes = 0;     // number of bytes from there on that are contiguous in that file
};

// Returns the place of the byte at OFFSET_BYTES. REQUIRES: offset_bytes >= 0.
[[nodiscard]] StripePlace stripe_place(const StripeLayout& layout, int64_t offset_bytes);

// Returns the length that each file needs for CAPACITY in all, in whole stripes.
[[nodiscard]] Bytes stripe_file_bytes(const StripeLayout& layout, Bytes capacity);

struct BackingFile {
    std::string path;
    UniqueFd fd;          // open for reading and writing
    bool direct = false;  // O_DIRECT: past the page cache
};

struct BackingFiles {
    std::vector<BackingFile> files;  // there is at least one
    StripeLayout layout;
    Bytes capacity;  // bytes of all together; each file has stripe_file_bytes() of it

    [[nodiscard]] const std::string& path_at(int64_t offset_bytes) const {
        return files[stripe_place(layout, offset_bytes).file].path;
    }
};

}  // namespace dslaunch::storage

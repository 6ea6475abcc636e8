// The files on disk under a block file: opened, of equal length, with their layout. Owned by
// whoever made them (swap_files.h); engines only use the descriptors.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/fd.h"
#include "storage/disk/stripe.h"

namespace dslaunch::storage {

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

// A mark of a file's contents that is cheap for large files: two files with one mark hold the same
// bytes, as far as looking at a few of them can tell. Neither names nor times count, so a copy on
// another host has the same mark. Blocks on the disk. No state; any thread.
#pragma once

#include <string>

#include "storage/files/hash128.h"

namespace dslaunch::job {

// The hash of the size and the bytes of PATH; of a file over 64 MiB, of 256 blocks of 64 KiB that
// are evenly spread over it, the first and the last among them. Throws Error{kInput} as MappedFile
// does.
[[nodiscard]] storage::Hash128 file_fingerprint(const std::string& path);

}  // namespace dslaunch::job

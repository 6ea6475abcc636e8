// What a file system refuses, in words. Threads: any.
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"

namespace dslaunch::storage {

struct FileFailure {
    std::string path;
    std::string_view doing;  // "write", "make the folder"
    int error_number = 0;
    Bytes need;  // of the whole file; 0: nothing is said of it
    Bytes free;  // where PATH lies; said on a full disk
};

// Throws Error{kDisk}: path, operation, cause, what to do; bytes on a full disk.
[[noreturn]] void fail_file(const FileFailure& failure);

}  // namespace dslaunch::storage

// A file system's refusal is put into words here. Threads: any.
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"

namespace dslaunch::storage {

struct FileFailure {
    std::string path;
    std::string_view doing;  // "write", "make the folder"
    int error_number = 0;
    Bytes need;  // the whole file's bytes; 0: nothing is said of them
    Bytes free;  // bytes free where PATH lies; said on a full disk
};

// Throws Error{kDisk}: path, operation, cause, what to do; bytes on a full disk.
[[noreturn]] void fail_file(const FileFailure& failure);

}  // namespace dslaunch::storage

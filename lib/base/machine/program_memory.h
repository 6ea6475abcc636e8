// Measures the memory that this process holds for its program as it stands, since libraries differ
// in what they keep. Data path: after the trial run of a model -> admission. No threads; reads
// /proc.
#pragma once

#include <string>

#include "base/bytes.h"

namespace dslaunch {

struct ProgramMemory {
    Bytes own;   // anonymous: heap, stacks, changed pages of libraries, what kernels keep to pack
                 // their operands
    Bytes code;  // resident pages of the program's and its libraries' files, unchanged
};

// ROOT: the folder of proc/, for tests. Throws Error{kSetup} if proc/self/smaps cannot be read.
[[nodiscard]] ProgramMemory read_program_memory(const std::string& root = "");

}  // namespace dslaunch

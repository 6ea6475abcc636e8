// Measures the memory that this process currently uses for the program itself, since libraries
// differ in the buffers that they keep. Data path: after the trial run of a model -> admission. No
// threads; reads /proc.
#pragma once

#include <string>

#include "base/bytes.h"

namespace dslaunch {

// Memory that this process would use without a model's tensors.
struct ProgramMemory {
    Bytes own;   // anonymous memory: heap, stacks, changed pages of libraries, buffers in which
                 // kernels pack their operands
    Bytes code;  // resident, unchanged pages of the files of the program and its libraries
};

// Measures this process. Tests set ROOT, the folder that holds proc/. Throws Error{kSetup} if
// proc/self/smaps cannot be read.
[[nodiscard]] ProgramMemory read_program_memory(const std::string& root = "");

}  // namespace dslaunch

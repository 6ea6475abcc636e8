// Libraries with operators that a model calls and LibTorch lacks, as torchvision's _C.so. Used
// before the model is loaded, by every role that loads one. One thread.
#pragma once

#include <string>
#include <vector>

namespace dslaunch::graph {

// Loads the libraries FILES into this process, which registers their operators; a loaded one stays.
// Throws Error{kInput} for a file that is not a library, or that needs what is missing here; ends
// the process with that code if a library throws while it registers its operators.
void load_op_libraries(const std::vector<std::string>& files);

}  // namespace dslaunch::graph

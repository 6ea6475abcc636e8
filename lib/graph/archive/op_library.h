// Loads libraries with operators that a model calls and LibTorch does not have, such as
// torchvision's _C.so. Every program that loads a model first loads the model's libraries. One
// thread.
#pragma once

#include <string>
#include <vector>

namespace dslaunch::graph {

// Loads the libraries FILES into this process. Each library registers its operators and stays
// loaded. Throws Error{kInput} for a file that is not a library or that needs a missing library or
// symbol; if a library throws while it registers its operators, this may end the process with the
// exit code of kInput instead.
void load_op_libraries(const std::vector<std::string>& files);

}  // namespace dslaunch::graph

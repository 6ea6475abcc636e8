// The shared libraries that a program would load here, as its dynamic loader says (what ldd shows).
#pragma once

#include <string>
#include <vector>

namespace dslaunch::launch {

struct SharedLibrary {
    std::string name;  // name that the program asks for
    std::string path;  // path that the loader finds; empty: none
};

// The libraries of FILE, a program or a library, and theirs, without the C library's own, which
// belong to each host's kernel and loader, and without the GPU driver's (libcuda, libnvidia-*).
// Throws Error{kSetup} when the loader cannot be asked.
[[nodiscard]] std::vector<SharedLibrary> list_libraries(const std::string& file);

// TEXT is what the loader prints.
[[nodiscard]] std::vector<SharedLibrary> parse_library_list(const std::string& text);

}  // namespace dslaunch::launch

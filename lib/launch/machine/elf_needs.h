// Finds what a program or shared library needs at its start, from its ELF headers, and the
// libraries that its dynamic loader finds here (what ldd shows). Loads nothing. No threads.
#pragma once

#include <string>
#include <vector>

#include "launch/process/spawn.h"

namespace dslaunch::launch {

// The libraries that one file names, and the folders where it looks for them.
struct ElfNeeds {
    std::vector<std::string> libraries;  // names, as "libc10.so"
    std::vector<std::string> folders;    // the file's own search folders, absolute, $ORIGIN filled
                                         // in
    std::string glibc;                   // the newest version asked for, "2.34"; empty: none
};

// Throws Error{kSetup} that names PATH when it cannot be read or is not a 64-bit little-endian ELF
// file.
[[nodiscard]] ElfNeeds read_elf_needs(const std::string& path);

// Returns the libraries outside the system's folders that the file at PATH needs, directly or
// through other libraries: LibTorch and the libraries that came with it. The paths are absolute and
// sorted, without duplicates and without PATH itself. Throws as read_elf_needs() does.
[[nodiscard]] std::vector<std::string> own_libraries(const std::string& path);

// A library that a program needs.
struct SharedLibrary {
    std::string name;  // name that the program asks for
    std::string path;  // path that the loader finds; empty: none
};

// Returns all libraries that FILE, a program or a library, needs directly or indirectly, as the
// loader finds them in ENVIRONMENT. Adds libraries that cuDNN, nvrtc and LibTorch for CUDA open
// while they run, if they lie in the opener's folder and the loader can open them. Leaves out the
// libraries of glibc and of the GPU driver (libcuda, libnvidia-*), which belong to each host.
// Throws Error{kSetup} if the loader cannot be run.
[[nodiscard]] std::vector<SharedLibrary> list_libraries(
    const std::string& file, const EnvironmentList& environment = own_environment());

// Parses TEXT, the output of the loader.
[[nodiscard]] std::vector<SharedLibrary> parse_library_list(const std::string& text);

}  // namespace dslaunch::launch

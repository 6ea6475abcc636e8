// The needs of a program or shared library at its start, read from its ELF headers: nothing is
// loaded. No threads.
#pragma once

#include <string>
#include <vector>

namespace dslaunch::launch {

struct ElfNeeds {
    std::vector<std::string> libraries;  // names, as "libc10.so"
    std::vector<std::string> folders;    // the file's own search folders, absolute, $ORIGIN filled
                                         // in
    std::string glibc;                   // the newest version asked for, "2.34"; empty: none
};

// Throws Error{kSetup} naming the path when it cannot be read or is no 64-bit little-endian ELF
// file.
[[nodiscard]] ElfNeeds read_elf_needs(const std::string& path);

// The libraries that PATH, and they in turn, find in folders of their own instead of the system's:
// LibTorch and what came with it. Absolute paths, sorted, each once; PATH itself is not among them.
// Throws as read_elf_needs().
[[nodiscard]] std::vector<std::string> own_libraries(const std::string& path);

}  // namespace dslaunch::launch

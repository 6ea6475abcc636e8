#include "base/machine/program_memory.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "base/error.h"

namespace dslaunch {

namespace {

struct FilePages {
    bool runs = false;  // a part of the file is mapped as executable
    int64_t unchanged_kib = 0;
};

}  // namespace

ProgramMemory read_program_memory(const std::string& root) {
    const std::string path = root + "/proc/self/smaps";
    std::ifstream file(path);
    if (!file)
        fail(ExitCode::kSetup, "{}: {}: cannot find out how much memory a rank's program uses",
             path, std::strerror(errno));
    ProgramMemory memory;
    std::map<std::string, FilePages> files;
    FilePages none;
    FilePages* of = &none;
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string first, second;
        words >> first >> second;
        // Lines are "7f00-7f01 r-xp 00000000 fe:00 12 /lib/x.so", then "Rss:  4 kB" and other
        // values.
        if (first.back() != ':') {
            std::string offset, device, inode, name;
            words >> offset >> device >> inode >> name;
            of = name.starts_with('/') ? &files[name] : &none;
            of->runs = of->runs || second.find('x') != std::string::npos;
        } else if (first == "Rss:") {
            of->unchanged_kib += std::stoll(second);
        } else if (first == "Anonymous:") {
            of->unchanged_kib -= std::stoll(second);
            memory.own += Bytes{std::stoll(second) << 10};
        }
    }
    for (const auto& [name, pages] : files)
        if (pages.runs) memory.code += Bytes{pages.unchanged_kib << 10};
    return memory;
}

}  // namespace dslaunch

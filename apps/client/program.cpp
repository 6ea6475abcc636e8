#include "client/program.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/error.h"
#include "base/path.h"
#include "launch/process/spawn.h"

namespace dslaunch::client {

namespace {

// Returns true if PATH is an executable file, and not a folder such as lib/dslaunch.
bool is_program(const std::string& path) {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
           ::access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::string find_dslaunch(const std::string& given) {
    if (!given.empty()) return given;
    if (const char* const named = std::getenv("DSLAUNCH"); named != nullptr && *named != '\0')
        return named;
    Dl_info info{};
    if (::dladdr(reinterpret_cast<const void*>(&find_dslaunch), &info) != 0) {
        const std::string folder = folder_of(info.dli_fname);
        // The first path is for an installed library, the second one for a build folder.
        for (const std::string& path : {folder + "/../bin/dslaunch", folder + "/dslaunch"})
            if (is_program(path)) return path;
    }
    const std::string found = launch::find_program("dslaunch", launch::own_environment(), ".");
    if (found.empty())
        fail(ExitCode::kSetup,
             "cannot find the program dslaunch beside this library or in PATH; give the path of "
             "dslaunch in the variable DSLAUNCH, or as `program` in the request");
    return found;
}

}  // namespace dslaunch::client

// A library of this build that lies beside the program. It is opened only when it is needed, since
// its own libraries are large or not on every machine. It exports one function without arguments,
// which returns data that begin with their version (uint32_t). Any thread.
#pragma once

#include <cstdint>
#include <string>

namespace dslaunch {

struct PluginKind {
    const char* name = "";        // "GPU"
    const char* entry = "";       // the function
    uint32_t version = 0;         // of its data; both sides come from one build
    const char* remedy = "";      // what to do where it cannot be opened
    bool shares_symbols = false;  // libraries that are opened later may use those that it links
};

// Returns the path of FILE, a plugin of this program's own build.
[[nodiscard]] std::string own_plugin(const std::string& file);

// Returns the data of the plugin at PATH, which stays open until the process ends: its libraries
// may keep threads. Throws Error{kSetup} that names it if it is missing, not a KIND plugin, or of
// another build.
[[nodiscard]] const void* open_plugin(const std::string& path, const PluginKind& kind);

}  // namespace dslaunch

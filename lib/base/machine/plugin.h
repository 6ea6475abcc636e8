// Opens plugins. A plugin is a shared library from the same build as the program, in the program's
// folder or in ../lib/dslaunch. A plugin is opened only when it is needed, because the libraries
// that it links are large, or missing on some machines. It exports one function without arguments,
// which returns its data. The data begin with their version (uint32_t). Any thread may call the
// functions.
#pragma once

#include <cstdint>
#include <string>

namespace dslaunch {

// The properties that all plugins of one kind share.
struct PluginKind {
    const char* name = "";        // "GPU"
    const char* entry = "";       // the name of its function
    uint32_t version = 0;         // the version of its data; program and plugin must agree
    const char* remedy = "";      // what to do if it cannot be opened
    bool shares_symbols = false;  // later libraries may use symbols of the libraries that it links
};

// Returns the path of the plugin FILE for programs in the folder PROGRAMS. Packages install plugins
// in PROGRAMS/../lib/dslaunch; builds put plugins in PROGRAMS itself. If FILE exists in the first
// folder, returns its path there. Otherwise returns the path in PROGRAMS, even if FILE does not
// exist.
[[nodiscard]] std::string plugin_of(const std::string& programs, const std::string& file);
// Returns the path of FILE, a plugin from the same build as this program.
[[nodiscard]] std::string own_plugin(const std::string& file);

// Returns the data of the plugin at PATH. The plugin stays loaded until the process ends, since its
// libraries may have running threads. Throws Error{kSetup} that names the plugin if it is missing,
// not a KIND plugin, or from another build.
[[nodiscard]] const void* open_plugin(const std::string& path, const PluginKind& kind);

}  // namespace dslaunch

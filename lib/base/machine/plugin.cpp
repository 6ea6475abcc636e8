#include "base/machine/plugin.h"

#include <dlfcn.h>

#include <filesystem>

#include "base/error.h"

namespace dslaunch {

std::string plugin_of(const std::string& programs, const std::string& file) {
    const std::filesystem::path folder = programs;
    const std::filesystem::path packaged = folder.parent_path() / "lib/dslaunch" / file;
    std::error_code unreadable;
    return (std::filesystem::exists(packaged, unreadable) ? packaged : folder / file).string();
}

std::string own_plugin(const std::string& file) {
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
    return plugin_of(program.parent_path().string(), file);
}

const void* open_plugin(const std::string& path, const PluginKind& kind) {
    const int scope = kind.shares_symbols ? RTLD_GLOBAL : RTLD_LOCAL;
    void* const library = ::dlopen(path.c_str(), RTLD_NOW | scope);
    if (library == nullptr)
        fail(ExitCode::kSetup, "the {} plugin cannot be opened: {}; {}", kind.name, ::dlerror(),
             kind.remedy);
    const auto entry = reinterpret_cast<const void* (*)()>(::dlsym(library, kind.entry));
    if (entry == nullptr)
        fail(ExitCode::kSetup, "{}: is not a {} plugin of dslaunch", path, kind.name);
    const void* const data = entry();
    const uint32_t version = *static_cast<const uint32_t*>(data);
    if (version != kind.version)
        fail(ExitCode::kSetup,
             "{}: has version {}, but this dsworker needs version {}; install both from the same "
             "build",
             path, version, kind.version);
    return data;
}

}  // namespace dslaunch

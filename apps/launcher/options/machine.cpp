#include "launcher/options/machine.h"

#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "base/text.h"
#include "launch/machine/gpu_use.h"
#include "launch/machine/machine_name.h"

extern char** environ;

namespace dslaunch::launcher {

Machine Machine::this_one() {
    Machine machine;
    machine.host_name = launch::machine_name("");
    machine.gpu_count = static_cast<int>(launch::count_gpus());
    std::error_code error;
    machine.directory = std::filesystem::current_path(error).string();
    if (error)
        fail(ExitCode::kSetup,
             "cannot read the current directory: {}; if it was removed, cd to another one",
             error.message());
    const auto binary = std::filesystem::read_symlink("/proc/self/exe", error);
    if (error) fail(ExitCode::kSetup, "cannot read /proc/self/exe: {}", error.message());
    machine.binary_directory = binary.parent_path().string();
    if (access("/job/hostfile", F_OK) == 0) machine.default_hostfile = "/job/hostfile";
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        const size_t equals = text.find('=');
        if (equals == std::string_view::npos || equals == 0) continue;
        machine.environment.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    }
    return machine;
}

std::string Machine::python() const {
    std::vector<std::string> folders;
    for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
        if (const auto prefix = variable(name); prefix && prefix->starts_with('/'))
            folders.push_back(*prefix + "/bin");
    }
    for (const std::string& folder : split(variable("PATH").value_or(""), ':')) {
        if (folder.starts_with('/')) folders.push_back(folder);
    }
    for (const std::string& folder : folders) {
        const std::string path = folder + "/python3";
        if (access(path.c_str(), X_OK) == 0) return path;
    }
    return "python3";
}

std::optional<std::string> Machine::variable(std::string_view name) const {
    for (const auto& [key, value] : environment) {
        if (key == name) return value;
    }
    return std::nullopt;
}

int64_t Machine::number(std::string_view name) const {
    return parse_int(variable(name).value_or("")).value_or(-1);
}

std::string resolved_path(const std::string& path, const std::string& directory) {
    return (std::filesystem::path(directory) / path).lexically_normal().string();
}

}  // namespace dslaunch::launcher

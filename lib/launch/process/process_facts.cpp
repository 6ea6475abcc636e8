#include "launch/process/process_facts.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <memory>

#include "base/text.h"
#include "launch/process/text_or_empty.h"

namespace dslaunch::launch {
namespace {

constexpr size_t kProcessFileBytesMax = 4U << 20;

std::string process_file(pid_t pid, const char* name) {
    return text_or_empty(fmt::format("/proc/{}/{}", pid, name), kProcessFileBytesMax);
}

}  // namespace

std::vector<pid_t> all_processes() {
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), ::closedir);
    std::vector<pid_t> pids;
    while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr)
        if (const auto pid = parse_int(entry->d_name)) pids.push_back(static_cast<pid_t>(*pid));
    return pids;
}

std::optional<uid_t> process_owner(pid_t pid) {
    struct stat facts {};
    if (::stat(fmt::format("/proc/{}", pid).c_str(), &facts) != 0) return std::nullopt;
    return facts.st_uid;
}

std::string process_command(pid_t pid) {
    return std::string(trim(process_file(pid, "comm")));
}

EnvironmentList process_environment(pid_t pid) {
    EnvironmentList environment;
    for (const std::string& entry : split(process_file(pid, "environ"), '\0')) {
        const size_t equals = entry.find('=');
        if (equals != std::string::npos)
            environment.emplace_back(entry.substr(0, equals), entry.substr(equals + 1));
    }
    return environment;
}

}  // namespace dslaunch::launch

#include "launch/machine/control_group.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;

constexpr size_t kProcFileBytesMax = 1U << 20;
constexpr int64_t kProcessorsMax = 65'536;

// Empty when it cannot be read: not on this kernel, or not for us.
std::string control_text(const std::string& path) {
    try {
        return read_file(path, kProcFileBytesMax);
    } catch (const Error&) {
        return {};
    }
}

struct Group {
    bool version_1 = false;
    std::vector<std::string> folders;  // the group's own folder first, then those above it, as far
                                       // as visible here
};

// A container often sees its group as the top, whatever /proc says.
Group find_group(const std::string& root, std::string_view controller) {
    Group group;
    std::string top;
    std::string path;
    for (const std::string& line : split(control_text(root + "/proc/self/cgroup"), '\n')) {
        const size_t first = line.find(':');
        const size_t second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const auto controllers = split(line.substr(first + 1, second - first - 1), ',');
        const bool named =
            std::find(controllers.begin(), controllers.end(), controller) != controllers.end();
        if (!named && !(line.starts_with("0::") && top.empty())) continue;
        group.version_1 = named;
        top = root + "/sys/fs/cgroup";
        if (named) top.append("/").append(controller);
        path = line.substr(second + 1);
        if (named) break;
    }
    if (top.empty()) return group;
    for (fs::path below(path); below != below.root_path() && !below.empty();
         below = below.parent_path()) {
        std::error_code error;
        if (fs::is_directory(top + below.string(), error)) {
            group.folders.push_back(top + below.string());
        }
    }
    group.folders.push_back(top);
    return group;
}

// The processors that one folder grants; 0: no limit.
int64_t granted_in(const std::string& folder, bool version_1) {
    std::vector<std::string> words;
    if (version_1) {
        words = {std::string(trim(control_text(folder + "/cpu.cfs_quota_us"))),
                 std::string(trim(control_text(folder + "/cpu.cfs_period_us")))};
    } else {
        words = split(trim(control_text(folder + "/cpu.max")), ' ');
    }
    if (words.size() != 2) return 0;
    const auto quota = parse_int(words[0]);
    const auto period = parse_int(words[1]);
    if (!quota || !period || *quota <= 0 || *period <= 0) return 0;
    return std::min((*quota + *period - 1) / *period, kProcessorsMax);
}

}  // namespace

int64_t read_counter(const std::string& path, const std::string& name) {
    for (const std::string& line : split(control_text(path), '\n')) {
        const auto words = split(line, ' ');
        if (words.size() == 2 && words[0] == name) return parse_int(words[1]).value_or(-1);
    }
    return -1;
}

int processors_granted(const std::string& root) {
    const Group group = find_group(root, "cpu");
    int64_t least = 0;
    for (const std::string& folder : group.folders) {
        const int64_t granted = granted_in(folder, group.version_1);
        if (granted > 0 && (least == 0 || granted < least)) least = granted;
    }
    return static_cast<int>(least);
}

int64_t group_oom_kills(const std::string& root) {
    const Group group = find_group(root, "memory");
    const char* const file = group.version_1 ? "/memory.oom_control" : "/memory.events";
    // A group of version 2 without limits of its own counts nothing: the one above it does.
    for (const std::string& folder : group.folders) {
        if (const int64_t kills = read_counter(folder + file, "oom_kill"); kills >= 0) return kills;
    }
    return -1;
}

}  // namespace dslaunch::launch

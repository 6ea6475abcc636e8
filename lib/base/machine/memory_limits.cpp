#include "base/machine/memory_limits.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <span>
#include <sstream>
#include <string_view>

#include "base/machine/control_group.h"
#include "base/text.h"

namespace dslaunch {

namespace {

// A limit of this value or more means no limit. Where no limit is set, cgroup version 1 writes the
// largest multiple of the page size.
constexpr int64_t kNoLimit = int64_t{1} << 60;

std::string text_of(const std::string& path) {
    const std::ifstream file(path);
    std::ostringstream text;
    if (file.good()) text << file.rdbuf();
    return std::move(text).str();
}

// Returns the number in a file that contains only a number; nothing if the file does not exist or
// contains "max".
std::optional<int64_t> number_in(const std::string& path) {
    return parse_int(trim(text_of(path)));
}

std::vector<std::string> words_of(std::string_view line) {
    std::vector<std::string> words;
    for (std::string& word : split(line, ' '))
        if (!word.empty()) words.push_back(std::move(word));
    return words;
}

// Returns the sum of the numbers that follow NAMES in a file of lines "name number"; missing names
// count as 0.
int64_t sum_of(const std::string& path, std::span<const std::string_view> names) {
    int64_t sum = 0;
    for (const std::string& line : split(text_of(path), '\n')) {
        const size_t end = line.find_first_of(" :\t");
        if (end == std::string::npos) continue;
        const std::string_view name = std::string_view(line).substr(0, end);
        if (std::find(names.begin(), names.end(), name) == names.end()) continue;
        std::string_view rest = trim(std::string_view(line).substr(end + 1));
        rest = rest.substr(0, rest.find(' '));
        sum += parse_int(trim(rest)).value_or(0);
    }
    return sum;
}

// Returns the value of NAME in a file of /proc that gives values in KiB.
Bytes kib_of(const std::string& path, std::string_view name) {
    return kib(sum_of(path, std::span(&name, 1)));
}

// A mount point, and the folder of the cgroup hierarchy that is mounted there.
struct Mount {
    std::string point;
    std::string root;
};

// Finds a mount in lines such as "36 35 98:0 /mnt1 /mnt2 rw shared:1 - ext3 /dev/root
// rw,errors=continue".
std::optional<Mount> find_mount(const std::string& root, std::string_view type,
                                std::string_view option) {
    for (const std::string& line : split(text_of(root + "/proc/self/mountinfo"), '\n')) {
        const size_t dash = line.find(" - ");
        if (dash == std::string::npos) continue;
        const std::vector<std::string> place = words_of(std::string_view(line).substr(0, dash));
        const std::vector<std::string> what = words_of(std::string_view(line).substr(dash + 3));
        if (place.size() < 5 || what.size() < 3 || what[0] != type) continue;
        const std::vector<std::string> options = split(what[2], ',');
        if (!option.empty() && std::find(options.begin(), options.end(), option) == options.end())
            continue;
        return Mount{place[4], place[3] == "/" ? "" : place[3]};
    }
    return {};
}

// Returns the path of GROUP relative to ROOT; "" for ROOT itself. A container may see only the part
// of the hierarchy below ROOT. Also returns "" if GROUP is not inside ROOT.
std::string inside(std::string_view root, std::string_view group) {
    if (!group.starts_with(root) || group.find("..") != std::string_view::npos) return "";
    group.remove_prefix(root.size());
    return std::string(group.starts_with('/') ? group : "");
}

struct GroupFiles {
    std::string_view type;        // the file system's type
    std::string_view controller;  // the name in /proc/self/cgroup and among the mount's options
    const char* limit;
    const char* usage;
    std::span<const std::string_view> given_back;  // lines of memory.stat for the whole subtree
};

// Memory that the kernel can reclaim: file pages on the inactive and the active list, and slabs.
// Shared memory is on neither list.
constexpr std::array<std::string_view, 3> kGivenBack2 = {"inactive_file", "active_file",
                                                         "slab_reclaimable"};
constexpr std::array<std::string_view, 2> kGivenBack1 = {"total_inactive_file",
                                                         "total_active_file"};

// Adds the memory limits of this process's control group and of all visible groups above it.
void add_groups(const std::string& root, const GroupFiles& files,
                std::vector<MemoryLimit>& limits) {
    const std::optional<Mount> mount = find_mount(root, files.type, files.controller);
    const std::optional<std::string> own =
        find_control_group(text_of(root + "/proc/self/cgroup"), files.controller);
    if (!mount || !own) return;
    std::string group = inside(mount->root, *own);
    while (true) {
        while (group.ends_with('/')) group.pop_back();
        const std::string folder = root + mount->point + group;
        const std::optional<int64_t> limit = number_in(folder + "/" + files.limit);
        const std::optional<int64_t> usage = number_in(folder + "/" + files.usage);
        if (limit && *limit < kNoLimit) {
            const int64_t kept =
                usage.value_or(0) - sum_of(folder + "/memory.stat", files.given_back);
            limits.push_back(
                {fmt::format("{} of control group {}", files.limit, group.empty() ? "/" : group),
                 Bytes{std::max<int64_t>(0, *limit - std::max<int64_t>(0, kept))}});
        }
        if (group.empty()) return;
        group.erase(group.rfind('/'));
    }
}

// Reads a line such as "Max address space         unlimited            unlimited            bytes".
std::optional<int64_t> soft_limit(const std::string& root, std::string_view name) {
    for (const std::string& line : split(text_of(root + "/proc/self/limits"), '\n')) {
        if (!line.starts_with(name)) continue;
        const std::vector<std::string> words = words_of(std::string_view(line).substr(name.size()));
        return words.empty() ? std::nullopt : parse_int(words.front());
    }
    return {};
}

struct ProcessLimit {
    std::string_view limit;  // its line in /proc/self/limits
    std::string_view held;   // its line in /proc/self/status
    const char* name;
    LimitOf of;
};

void add_process_limit(const std::string& root, const ProcessLimit& one,
                       std::vector<MemoryLimit>& limits) {
    const std::optional<int64_t> most = soft_limit(root, one.limit);
    if (!most) return;
    const Bytes used = kib_of(root + "/proc/self/status", one.held);
    limits.push_back({one.name, Bytes{std::max<int64_t>(0, *most - used.value)}, one.of});
}

}  // namespace

MemoryState read_memory_state(const std::string& root) {
    MemoryState state;
    add_groups(root, {"cgroup2", "", "memory.max", "memory.current", kGivenBack2}, state.limits);
    add_groups(root,
               {"cgroup", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", kGivenBack1},
               state.limits);
    const Bytes available = kib_of(root + "/proc/meminfo", "MemAvailable");
    if (available.value > 0) state.limits.push_back({"MemAvailable of /proc/meminfo", available});
    add_process_limit(root, {"Max address space", "VmSize", "RLIMIT_AS", LimitOf::kAddressSpace},
                      state.limits);
    add_process_limit(root, {"Max data size", "VmData", "RLIMIT_DATA", LimitOf::kPrivate},
                      state.limits);
    const std::string status = root + "/proc/self/status";
    state.held = kib_of(status, "RssAnon") + kib_of(status, "RssShmem");
    return state;
}

std::optional<MemoryLimit> tightest_share(const std::vector<MemoryLimit>& limits, int local_ranks,
                                          Bytes reserve) {
    std::optional<MemoryLimit> tightest;
    for (MemoryLimit limit : limits) {
        const int64_t left = std::max<int64_t>(0, (limit.left - reserve).value);
        limit.left = Bytes{limit.of == LimitOf::kHost ? left / local_ranks : left};
        if (!tightest || limit.left < tightest->left) tightest = std::move(limit);
    }
    return tightest;
}

Bytes free_memory(int local_ranks) {
    constexpr Bytes kUnlimited = gib(int64_t{1} << 20);
    const std::optional<MemoryLimit> share =
        tightest_share(read_memory_state().limits, local_ranks);
    return share ? share->left : kUnlimited;
}

}  // namespace dslaunch

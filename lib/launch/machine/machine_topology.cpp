#include "launch/machine/machine_topology.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "base/machine/control_group.h"
#include "base/text.h"
#include "launch/process/process_tree.h"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kProcessorsMax = 65'536;

struct Group {
    bool version_1 = false;
    std::vector<std::string> folders;  // the group's own folder first, then the visible folders
                                       // above it
};

// Finds this process's control group. A container often sees its own group as the top folder, even
// if /proc shows a longer path.
Group find_group(const std::string& root, std::string_view controller) {
    Group group;
    const std::string text = text_or_empty(root + "/proc/self/cgroup");
    const std::optional<std::string> named = find_control_group(text, controller);
    const std::optional<std::string> own = named ? named : find_control_group(text, "");
    if (!own) return group;
    group.version_1 = named.has_value();
    std::string top = root + "/sys/fs/cgroup";
    if (named) top.append("/").append(controller);
    for (fs::path below(*own); below != below.root_path() && !below.empty();
         below = below.parent_path()) {
        std::error_code error;
        if (fs::is_directory(top + below.string(), error)) {
            group.folders.push_back(top + below.string());
        }
    }
    group.folders.push_back(top);
    return group;
}

// Returns the number of processors that one group's folder grants; 0: no limit.
int64_t granted_in(const std::string& folder, bool version_1) {
    std::vector<std::string> words;
    if (version_1) {
        words = {std::string(trim(text_or_empty(folder + "/cpu.cfs_quota_us"))),
                 std::string(trim(text_or_empty(folder + "/cpu.cfs_period_us")))};
    } else {
        words = split(trim(text_or_empty(folder + "/cpu.max")), ' ');
    }
    if (words.size() != 2) return 0;
    const auto quota = parse_int(words[0]);
    const auto period = parse_int(words[1]);
    if (!quota || !period || *quota <= 0 || *period <= 0) return 0;
    return std::min((*quota + *period - 1) / *period, kProcessorsMax);
}

constexpr int64_t kProcessorMax = 65'535;
constexpr int kCachesMax = 16;

int number_of(const std::string& path, int otherwise) {
    const auto number = parse_int(trim(text_or_empty(path)));
    return number && *number >= 0 && *number <= kProcessorMax ? static_cast<int>(*number)
                                                              : otherwise;
}

int first_of_list(const std::string& path, int otherwise) {
    const auto list = parse_processor_list(trim(text_or_empty(path)));
    return list ? list->front() : otherwise;
}

// Returns the lowest number of all processors that share the last-level cache with the processor in
// PROCESSOR_FOLDER. Returns OTHERWISE if it is not known.
int last_cache_of(const std::string& processor_folder, int otherwise) {
    int best_level = 0;
    int found = otherwise;
    for (int index = 0; index < kCachesMax; ++index) {
        const std::string cache = fmt::format("{}/cache/index{}", processor_folder, index);
        const int level = number_of(cache + "/level", 0);
        if (level == 0) break;
        if (level < best_level) continue;
        best_level = level;
        found = first_of_list(cache + "/shared_cpu_list", otherwise);
    }
    return found;
}

// Returns the NUMA node of each processor.
std::map<int, int> read_nodes(const std::string& root) {
    constexpr std::string_view kPrefix = "node";
    std::map<int, int> nodes;
    std::error_code error;
    fs::directory_iterator entry(root + "/sys/devices/system/node", error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
        const std::string name = entry->path().filename().string();
        if (!name.starts_with(kPrefix)) continue;
        const auto node = parse_int(name.substr(kPrefix.size()));
        const auto list = parse_processor_list(trim(text_or_empty(entry->path() / "cpulist")));
        if (!node || !list) continue;
        for (const int number : *list) nodes[number] = static_cast<int>(*node);
    }
    return nodes;
}

// Returns the NUMA nodes of the GPUs that have a device file here, ordered by PCI address, which is
// CUDA's order for GPUs of one kind.
std::vector<int> read_gpu_nodes(const std::string& root) {
    std::vector<std::string> addresses;
    std::error_code error;
    fs::directory_iterator entry(root + "/proc/driver/nvidia/gpus", error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
        const std::string facts = text_or_empty(entry->path() / "information");
        if (fs::exists(root + "/dev/nvidia" + value_in(facts, "Device Minor")))
            addresses.push_back(entry->path().filename().string());
    }
    std::sort(addresses.begin(), addresses.end());
    std::vector<int> nodes;
    for (const std::string& address : addresses) {
        nodes.push_back(
            number_of(fmt::format("{}/sys/bus/pci/devices/{}/numa_node", root, address), -1));
    }
    return nodes;
}

}  // namespace

int64_t read_counter(const std::string& path, const std::string& name) {
    for (const std::string& line : split(text_or_empty(path), '\n')) {
        const auto words = split(line, ' ');
        if (words.size() == 2 && words[0] == name) return parse_int(words[1]).value_or(-1);
    }
    return -1;
}

int group_processors(const std::string& root) {
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
    // A cgroup v2 group without limits has no count; a group above it may have one.
    for (const std::string& folder : group.folders) {
        if (const int64_t kills = read_counter(folder + file, "oom_kill"); kills >= 0) return kills;
    }
    return -1;
}

OomCount count_oom_kills(const std::string& root) {
    return {read_counter(root + "/proc/vmstat", "oom_kill"), group_oom_kills(root)};
}

std::string describe_oom(const OomCount& before, const OomCount& now) {
    if (before.group >= 0 && now.group > before.group) {
        return fmt::format(
            "the memory limit of its control group killed {} process(es) during the run",
            now.group - before.group);
    }
    if (before.machine >= 0 && now.machine > before.machine) {
        return fmt::format("the kernel's out-of-memory killer ended {} process(es) during the run",
                           now.machine - before.machine);
    }
    return {};
}

MachineTopology read_machine_topology(const std::string& root, const std::vector<int>& allowed) {
    MachineTopology topology;
    const std::map<int, int> nodes = read_nodes(root);
    for (const int number : allowed) {
        const std::string folder = fmt::format("{}/sys/devices/system/cpu/cpu{}", root, number);
        Processor processor;
        processor.number = number;
        processor.core = first_of_list(folder + "/topology/thread_siblings_list", number);
        processor.package = number_of(folder + "/topology/physical_package_id", 0);
        const auto node = nodes.find(number);
        processor.node = node == nodes.end() ? 0 : node->second;
        processor.cache = last_cache_of(folder, processor.package);
        topology.processors.push_back(processor);
    }
    topology.gpu_nodes = read_gpu_nodes(root);
    topology.cores_max = group_processors(root);
    return topology;
}

std::vector<int> allowed_processors() {
    std::vector<int> numbers;
    // The kernel refuses a set that is smaller than its own.
    for (int capacity = CPU_SETSIZE; capacity <= kProcessorMax + 1; capacity *= 2) {
        cpu_set_t* const set = CPU_ALLOC(capacity);
        const size_t bytes = CPU_ALLOC_SIZE(capacity);
        CPU_ZERO_S(bytes, set);
        const bool fits = ::sched_getaffinity(0, bytes, set) == 0;
        for (int number = 0; fits && number < capacity; ++number) {
            if (CPU_ISSET_S(number, bytes, set)) numbers.push_back(number);
        }
        CPU_FREE(set);
        if (fits) break;
    }
    return numbers;
}

int processors_allowed() {
    const auto allowed = static_cast<int64_t>(allowed_processors().size());
    const int64_t known = allowed > 0 ? allowed : ::sysconf(_SC_NPROCESSORS_ONLN);
    return static_cast<int>(std::max<int64_t>(known, 1));
}

int processors_granted() {
    const int allowed = processors_allowed();
    const int of_group = group_processors("");
    return of_group > 0 ? std::min(of_group, allowed) : allowed;
}

std::optional<std::vector<int>> parse_processor_list(std::string_view text) {
    std::vector<bool> is_listed(kProcessorMax + 1);  // true: the text names this processor, once or
                                                     // several times
    for (const std::string& piece : split(text, ',')) {
        const std::vector<std::string> ends = split(piece, '-');
        const auto first = parse_int(ends.front());
        const auto last = parse_int(ends.back());
        if (ends.size() > 2 || !first || !last || *first < 0 || *last < *first ||
            *last > kProcessorMax) {
            return std::nullopt;
        }
        std::fill(is_listed.begin() + *first, is_listed.begin() + *last + 1, true);
    }
    std::vector<int> numbers;
    for (int number = 0; number <= kProcessorMax; ++number) {
        if (is_listed[number]) numbers.push_back(number);
    }
    return numbers;
}

std::string processor_list_text(const std::vector<int>& sorted_numbers) {
    std::string text;
    for (size_t i = 0; i < sorted_numbers.size();) {
        size_t end = i + 1;
        while (end < sorted_numbers.size() && sorted_numbers[end] == sorted_numbers[end - 1] + 1) {
            ++end;
        }
        text += fmt::format("{}{}", text.empty() ? "" : ",", sorted_numbers[i]);
        if (end - i > 1) text += fmt::format("-{}", sorted_numbers[end - 1]);
        i = end;
    }
    return text;
}

}  // namespace dslaunch::launch

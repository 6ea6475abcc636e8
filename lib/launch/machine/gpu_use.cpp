#include "launch/machine/gpu_use.h"

#include <dirent.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

#include "base/text.h"
#include "launch/machine/gpu_count.h"
#include "launch/process/process_facts.h"
#include "launch/process/program_output.h"

namespace dslaunch::launch {
namespace {

constexpr std::chrono::milliseconds kAnswerMax{5'000};
constexpr const char* kFormat = "--format=csv,noheader,nounits";

int64_t bytes_of(std::string_view mebibytes) {
    const auto number = parse_int(mebibytes);
    return number && *number >= 0 && *number < (int64_t{1} << 40) ? *number << 20 : -1;
}

// The fields of each line that has COUNT of them; a name between them may hold a comma.
std::vector<std::vector<std::string>> rows_of(std::string_view text, size_t count, size_t name) {
    std::vector<std::vector<std::string>> rows;
    for (const std::string& line : split(text, '\n')) {
        std::vector<std::string> fields = split(line, ',');
        while (fields.size() > count) {
            fields[name] += "," + fields[name + 1];
            fields.erase(fields.begin() + static_cast<std::ptrdiff_t>(name) + 1);
        }
        if (fields.size() < count) continue;
        for (std::string& field : fields) field = trim(field);
        rows.push_back(std::move(fields));
    }
    return rows;
}

// Adds this user's processes that have a device open, where the driver does not say who holds
// what.
void add_open_devices(GpuUse& use) {
    for (const pid_t pid : all_processes())
        for (const int64_t gpu : open_gpus(pid)) use.holds.push_back({gpu, pid, -1});
}

}  // namespace

std::set<int64_t> open_gpus(pid_t pid) {
    const std::string path = fmt::format("/proc/{}/fd", pid);
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
    std::set<int64_t> gpus;
    while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
        char target[256];
        const ssize_t length =
            ::readlink((path + "/" + entry->d_name).c_str(), target, sizeof target);
        const std::string_view device(target, static_cast<size_t>(std::max<ssize_t>(0, length)));
        constexpr std::string_view kDevice = "/dev/nvidia";
        if (!device.starts_with(kDevice)) continue;
        if (const auto number = parse_int(device.substr(kDevice.size()))) gpus.insert(*number);
    }
    return gpus;
}

GpuUse parse_gpu_use(std::string_view gpus, std::string_view processes) {
    GpuUse use;
    std::map<std::string, int64_t> index_of;  // by UUID
    for (const std::vector<std::string>& row : rows_of(gpus, 5, 2)) {
        const auto index = parse_int(row[0]);
        if (!index || *index < 0) continue;
        index_of[row[1]] = *index;
        use.gpus.push_back({*index, row[2], bytes_of(row[3]), bytes_of(row[4])});
    }
    for (const std::vector<std::string>& row : rows_of(processes, 3, 2)) {
        const auto pid = parse_int(row[1]);
        const auto gpu = index_of.find(row[0]);
        if (pid && *pid > 0 && gpu != index_of.end())
            use.holds.push_back({gpu->second, *pid, bytes_of(row[2])});
    }
    return use;
}

GpuUse look_at_gpus() {
    GpuUse use = parse_gpu_use(
        program_output(
            {"nvidia-smi", "--query-gpu=index,uuid,name,memory.total,memory.used", kFormat},
            kAnswerMax),
        program_output({"nvidia-smi", "--query-compute-apps=gpu_uuid,pid,used_memory", kFormat},
                       kAnswerMax));
    if (use.gpus.empty()) {
        for (int64_t gpu = 0; gpu < count_gpus(); ++gpu) use.gpus.push_back({gpu, "", -1, -1});
        if (!use.gpus.empty())
            use.note =
                "nvidia-smi is not there or does not answer: only this user's processes are "
                "known, and no memory";
    }
    // In a container the driver tells of no process.
    if (use.holds.empty()) add_open_devices(use);
    std::ranges::sort(use.holds, {},
                      [](const GpuHold& hold) { return std::pair(hold.gpu, hold.pid); });
    return use;
}

}  // namespace dslaunch::launch

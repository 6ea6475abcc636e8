#include "launch/machine/gpu_use.h"

#include <dirent.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>

#include "base/bytes.h"
#include "base/text.h"
#include "launch/process/process_tree.h"
#include "launch/process/spawn.h"

namespace dslaunch::launch {
namespace {

constexpr std::chrono::milliseconds kAnswerMax{5'000};
constexpr const char* kFormat = "--format=csv,noheader,nounits";

int64_t bytes_of(std::string_view mebibytes) {
    const auto number = parse_int(mebibytes);
    return number && *number >= 0 && *number < (int64_t{1} << 40) ? *number << 20 : -1;
}

// Returns the COUNT fields of each line, and skips a line with fewer fields. If a line has too many
// commas, the surplus commas belong to the field with index NAME.
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

// Adds this user's processes that have a device open. Used if the driver names no processes.
void add_open_devices(GpuUse& use) {
    for (const pid_t pid : all_processes())
        for (const int64_t gpu : open_gpus(pid)) use.holds.push_back({gpu, pid, -1});
}

// Reads the lines of `nvidia-smi nvlink --status`: "GPU 0: NAME (UUID: …)", and below it "Link 3:
// 26.562 GB/s" or "Link 3: <inactive>".
void add_nvlinks(std::vector<Gpu>& gpus, std::string_view links) {
    Gpu* of = nullptr;
    for (const std::string& line : split(links, '\n')) {
        const std::string text(trim(line));
        if (text.starts_with("GPU ")) {
            const auto index = parse_int(text.substr(4, text.find(':') - 4));
            const auto gpu = std::ranges::find(gpus, index.value_or(-1), &Gpu::index);
            of = gpu == gpus.end() ? nullptr : &*gpu;
        } else if (of != nullptr && text.starts_with("Link ") && text.ends_with("GB/s")) {
            of->nvlinks = std::max<int64_t>(of->nvlinks, 0) + 1;
        }
    }
}

}  // namespace

int64_t count_gpus(const std::string& directory) {
    constexpr std::string_view kPrefix = "nvidia";
    std::error_code error;
    int64_t count = 0;
    std::filesystem::directory_iterator entry(directory, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
        const std::string name = entry->path().filename().string();
        // The folder also contains nvidiactl, nvidia-uvm and nvidia-caps.
        if (name.starts_with(kPrefix) && parse_int(name.substr(kPrefix.size()))) ++count;
    }
    return count;
}

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
        use.gpus.push_back({.index = *index,
                            .name = row[2],
                            .memory_bytes = bytes_of(row[3]),
                            .used_bytes = bytes_of(row[4]),
                            .uuid = row[1]});
    }
    for (const std::vector<std::string>& row : rows_of(processes, 3, 2)) {
        const auto pid = parse_int(row[1]);
        const auto gpu = index_of.find(row[0]);
        if (pid && *pid > 0 && gpu != index_of.end())
            use.holds.push_back({gpu->second, *pid, bytes_of(row[2])});
    }
    return use;
}

std::string link_text(const Gpu& gpu) {
    if (gpu.nvlinks > 0) return counted(gpu.nvlinks, "NVLink");
    if (gpu.pcie_lanes < 0) return "";
    std::string text = "PCIe";
    if (gpu.pcie_generation > 0) text += fmt::format(" {}", gpu.pcie_generation);
    text += fmt::format(" x{}", gpu.pcie_lanes);
    if (gpu.pcie_lanes_max > gpu.pcie_lanes) text += fmt::format(" of x{}", gpu.pcie_lanes_max);
    return text;
}

std::string fault_of(const Gpu& gpu) {
    if (gpu.ecc_errors <= 0) return "";
    return fmt::format(
        "GPU {}{}{}: ECC could not correct {} in its memory since the driver was loaded, so "
        "results may be wrong; reset the GPU, and replace it if such errors return",
        gpu.index, gpu.name.empty() ? "" : ", ", printable(gpu.name),
        counted(gpu.ecc_errors, "error"));
}

std::string facts_of_gpu(const GpuUse& use, std::string_view name, int64_t own_pid) {
    const auto gpu = std::ranges::find_if(use.gpus, [&](const Gpu& each) {
        return std::to_string(each.index) == name ||
               (name.starts_with("GPU-") && each.uuid.starts_with(name));
    });
    if (gpu == use.gpus.end()) return "";
    std::vector<std::string> facts;
    if (gpu->memory_bytes >= 0) facts.push_back(to_text(Bytes{gpu->memory_bytes}));
    if (gpu->used_bytes >= 0) facts.push_back(to_text(Bytes{gpu->used_bytes}) + " in use");
    if (!gpu->driver.empty()) facts.push_back("driver " + gpu->driver);
    if (gpu->ecc_errors >= 0) facts.push_back(counted(gpu->ecc_errors, "ECC error"));
    if (const std::string link = link_text(*gpu); !link.empty()) facts.push_back(link);
    for (const GpuHold& hold : use.holds) {
        if (hold.gpu != gpu->index || hold.pid == own_pid) continue;
        facts.push_back(
            fmt::format("also used by process {}{}", hold.pid,
                        hold.bytes < 0 ? "" : fmt::format(" ({})", to_text(Bytes{hold.bytes}))));
    }
    return join(facts, ", ");
}

void add_gpu_facts(std::vector<Gpu>& gpus, std::string_view facts, std::string_view links) {
    const auto count = [](const std::string& field) {
        const auto number = parse_int(field);
        return number && *number >= 0 ? *number : -1;
    };
    for (const std::vector<std::string>& row : rows_of(facts, 6, 1)) {
        const auto gpu = std::ranges::find(gpus, count(row[0]), &Gpu::index);
        if (gpu == gpus.end()) continue;
        gpu->driver = row[1];
        gpu->ecc_errors = count(row[2]);
        gpu->pcie_generation = count(row[3]);
        gpu->pcie_lanes = count(row[4]);
        gpu->pcie_lanes_max = count(row[5]);
    }
    add_nvlinks(gpus, links);
}

GpuUse look_at_gpus() {
    GpuUse use = parse_gpu_use(
        program_output(
            {"nvidia-smi", "--query-gpu=index,uuid,name,memory.total,memory.used", kFormat},
            kAnswerMax),
        program_output({"nvidia-smi", "--query-compute-apps=gpu_uuid,pid,used_memory", kFormat},
                       kAnswerMax));
    if (!use.gpus.empty())
        add_gpu_facts(
            use.gpus,
            program_output({"nvidia-smi",
                            "--query-gpu=index,driver_version,ecc.errors.uncorrected.volatile."
                            "total,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max",
                            kFormat},
                           kAnswerMax),
            program_output({"nvidia-smi", "nvlink", "--status"}, kAnswerMax));
    if (use.gpus.empty()) {
        for (int64_t gpu = 0; gpu < count_gpus(); ++gpu) use.gpus.push_back({.index = gpu});
        if (!use.gpus.empty())
            use.note =
                "nvidia-smi is missing or does not answer, so the report covers only this user's "
                "processes and no memory use";
    }
    // In a container the driver reports no processes.
    if (use.holds.empty()) add_open_devices(use);
    std::ranges::sort(use.holds, {},
                      [](const GpuHold& hold) { return std::pair(hold.gpu, hold.pid); });
    return use;
}

}  // namespace dslaunch::launch

#include "launch/machine/gpu_count.h"

#include <filesystem>

#include "base/text.h"

namespace dslaunch::launch {

int64_t count_gpus(const std::string& directory) {
    constexpr std::string_view kPrefix = "nvidia";
    std::error_code error;
    int64_t count = 0;
    std::filesystem::directory_iterator entry(directory, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
        const std::string name = entry->path().filename().string();
        // Beside them lie nvidiactl, nvidia-uvm, nvidia-caps.
        if (name.starts_with(kPrefix) && parse_int(name.substr(kPrefix.size()))) ++count;
    }
    return count;
}

}  // namespace dslaunch::launch

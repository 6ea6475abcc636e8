// Runs the real dslaunch and dsworker with test devices as GPUs. Both are copied, the plugin of
// test devices takes the CUDA plugin's place (test_plugin.cpp), and the machine seems to have GPUs.
#pragma once

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "base/check.h"
#include "support/device/gpu_nodes.h"
#include "support/job_process.h"
#include "support/places.h"
#include "support/skip.h"

namespace dslaunch::test {

class TestGpus {
  public:
    // If no such machine can be made, usable() returns false and the skip has been reported. WHAT
    // names the claim that is then not tested.
    TestGpus(int gpus_count, const std::string& what) : gpus_count_(gpus_count) {
        for (const char* name : {"dev", "bin", "bin/meetings"})
            std::filesystem::create_directory(folder_.path() + "/" + name);
        place("dslaunch", "dslaunch");
        place("dsworker", "dsworker");
        place("libdsl_test_device.so", "libdsl_cuda.so");
        const TemporaryFolder output;
        JobProcess probe(output, inside({"true"}));
        usable_ = probe.wait() == 0;
        if (!usable_) report_skipped(what, "it needs root and a mount namespace: " + probe.err());
    }
    [[nodiscard]] bool usable() const { return usable_; }
    [[nodiscard]] std::string program(const std::string& name) const {
        return folder_.path() + "/bin/" + name;
    }
    // Returns the command that runs COMMAND on that machine. It stays the same process.
    [[nodiscard]] std::vector<std::string> inside(const std::vector<std::string>& command) const {
        std::vector<std::string> all = {
            "unshare",
            "-m",
            "sh",
            "-c",
            dev_with_gpus(folder_.path() + "/dev", gpus_count_) + " && exec \"$@\"",
            "sh"};
        all.insert(all.end(), command.begin(), command.end());
        return all;
    }
    // Returns the command that runs COMMAND, a dslaunch with `--device cpu`, on that machine with
    // `--device cuda`.
    [[nodiscard]] std::vector<std::string> on_devices(std::vector<std::string> command) const {
        command.front() = program("dslaunch");
        const auto option = std::ranges::find(command, "--device");
        DSL_CHECK(option != command.end() && *std::next(option) == "cpu", "no job of the CPU");
        *std::next(option) = "cuda";
        return inside(command);
    }
    // Returns true if a device of RANK is in a collective of its first group that the other rank
    // has not reached. The device stays there if the other rank is stopped.
    [[nodiscard]] bool is_blocked(int rank) const { return newest(rank) > newest(1 - rank); }

  private:
    void place(const std::string& built, const std::string& name) const {
        const std::string from = std::string(test::binary_dir()) + "/" + built;
        // A link costs nothing, but it cannot be on another disk.
        std::error_code error;
        std::filesystem::create_hard_link(from, program(name), error);
        if (error) std::filesystem::copy_file(from, program(name));
    }
    // Returns the number of the last collective of its group to which RANK brought its part, or -1.
    [[nodiscard]] int64_t newest(int rank) const {
        int64_t number = -1;
        const std::string end = "." + std::to_string(rank);
        std::error_code gone;
        const std::filesystem::recursive_directory_iterator files(program("meetings"), gone);
        for (const auto& file : files) {
            const std::string name = file.path().filename().string();
            if (name.starts_with("all-") && name.ends_with(end))
                number = std::max(number, int64_t{std::stoll(name.substr(4))});
        }
        return number;
    }

    int gpus_count_;
    TemporaryFolder folder_;
    bool usable_ = false;
};

}  // namespace dslaunch::test

// The real dslaunch and dsworker on GPUs that are test devices: copies of both with the plugin of
// test devices in the CUDA plugin's place (test_plugin.cpp), on a machine that shows GPUs.
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
    // WHAT is the claim without proof if no such machine can be made: usable() is false then, and
    // the skip was reported.
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
    // Returns COMMAND as it runs on that machine. The process stays the one that is started.
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
    // Returns COMMAND, a dslaunch with `--device cpu`, as it runs there with `--device cuda`.
    [[nodiscard]] std::vector<std::string> on_devices(std::vector<std::string> command) const {
        command.front() = program("dslaunch");
        const auto option = std::ranges::find(command, "--device");
        DSL_CHECK(option != command.end() && *std::next(option) == "cpu", "no job of the CPU");
        *std::next(option) = "cuda";
        return inside(command);
    }
    // True if the work of a device of RANK is in a collective of its first group to which another
    // rank has not come. It stays there if that rank is stopped.
    [[nodiscard]] bool is_blocked(int rank) const { return newest(rank) > newest(1 - rank); }

  private:
    void place(const std::string& built, const std::string& name) const {
        const std::string from = std::string(test::binary_dir()) + "/" + built;
        // A link costs nothing; it cannot lie on another disk.
        std::error_code error;
        std::filesystem::create_hard_link(from, program(name), error);
        if (error) std::filesystem::copy_file(from, program(name));
    }
    // Returns the number of the last collective of two ranks that RANK brought its part to, or -1.
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

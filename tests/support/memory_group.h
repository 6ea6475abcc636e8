// A control group with a limit on memory, for version 1 or 2 of the kernel's interface. If
// possible, it is below the test's own group.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"

namespace dslaunch::test {

class MemoryGroup {
  public:
    // Makes the group if possible; why_not() tells whether it exists.
    explicit MemoryGroup(int64_t limit_bytes) {
        for (const Candidate& candidate : candidates()) {
            version_1_ = candidate.version_1;
            mount_ = candidate.mount;
            const std::string folder =
                candidate.folder + "/dslaunch-test-" + std::to_string(::getpid());
            std::error_code error;
            if (!std::filesystem::create_directory(folder, error)) {
                why_not_ = folder + " cannot be made: " + error.message();
                continue;
            }
            folder_ = folder;
            const std::string limit = std::to_string(limit_bytes);
            if (write(version_1_ ? "memory.limit_in_bytes" : "memory.max", limit)) {
                write(version_1_ ? "memory.memsw.limit_in_bytes" : "memory.swap.max",
                      version_1_ ? limit : "0");
                why_not_.clear();
                return;
            }
            why_not_ = folder + " takes no limit on memory: the controller is not delegated here";
            remove();
        }
        if (why_not_.empty()) why_not_ = "no control groups of memory are mounted";
    }
    MemoryGroup(const MemoryGroup&) = delete;
    MemoryGroup& operator=(const MemoryGroup&) = delete;
    ~MemoryGroup() { remove(); }

    // Returns the reason why the group does not exist; empty if it exists.
    [[nodiscard]] const std::string& why_not() const { return why_not_; }

    // Returns the command that runs COMMAND in the group. UNSEEN: the process cannot see its limit.
    [[nodiscard]] std::vector<std::string> inside(const std::vector<std::string>& command,
                                                  bool unseen = false) const {
        std::string script = "echo $$ > " + folder_ + "/cgroup.procs && ";
        if (unseen)
            script += "exec unshare -m sh -c 'mount -t tmpfs none " + mount_ +
                      " && exec \"$@\"' unseen \"$@\"";
        else
            script += "exec \"$@\"";
        std::vector<std::string> words = {"sh", "-c", script, "inside"};
        words.insert(words.end(), command.begin(), command.end());
        return words;
    }

    // Returns the largest number of bytes that the group used, including the page cache.
    [[nodiscard]] int64_t peak_bytes() const {
        return number(version_1_ ? "memory.max_usage_in_bytes" : "memory.peak");
    }
    // Returns the number of processes in the group that were killed because the group's memory was
    // used up.
    [[nodiscard]] int64_t kills() const {
        std::istringstream lines(read(version_1_ ? "memory.oom_control" : "memory.events"));
        for (std::string name, value; lines >> name >> value;)
            if (name == "oom_kill") return std::stoll(value);
        return -1;
    }

  private:
    struct Candidate {
        std::string folder;
        std::string mount;
        bool version_1;
    };

    // Returns a place for the group in each hierarchy that controls memory: this process's own
    // group, else the mount point.
    static std::vector<Candidate> candidates() {
        std::vector<Candidate> found;
        std::ifstream mounts("/proc/self/mounts");
        for (std::string line; std::getline(mounts, line);) {
            const std::vector<std::string> words = split(line, ' ');
            if (words.size() < 4) continue;
            const bool version_1 = words[2] == "cgroup";
            const std::vector<std::string> options = split(words[3], ',');
            const bool memory =
                std::find(options.begin(), options.end(), "memory") != options.end();
            if (!(version_1 ? memory : words[2] == "cgroup2")) continue;
            found.push_back({words[1] + own_path(version_1), words[1], version_1});
            found.push_back({words[1], words[1], version_1});
        }
        return found;
    }

    static std::string own_path(bool version_1) {
        std::ifstream file("/proc/self/cgroup");
        for (std::string line; std::getline(file, line);) {
            const std::vector<std::string> words = split(line, ':');
            if (words.size() != 3) continue;
            const std::vector<std::string> names = split(words[1], ',');
            const bool memory = std::find(names.begin(), names.end(), "memory") != names.end();
            if (version_1 ? memory : words[0] == "0") return words[2] == "/" ? "" : words[2];
        }
        return "";
    }

    bool write(const std::string& name, const std::string& text) const {
        if (!std::filesystem::exists(folder_ + "/" + name)) return false;
        std::ofstream file(folder_ + "/" + name);
        file << text << std::flush;
        return file.good();
    }
    [[nodiscard]] std::string read(const std::string& name) const {
        std::ifstream file(folder_ + "/" + name);
        std::ostringstream text;
        if (file.good()) text << file.rdbuf();
        return std::move(text).str();
    }
    [[nodiscard]] int64_t number(const std::string& name) const {
        return parse_int(trim(read(name))).value_or(-1);
    }

    void remove() {
        if (folder_.empty()) return;
        // The last processes may not have ended yet.
        for (int turn = 0; turn < 200 && ::rmdir(folder_.c_str()) != 0; ++turn)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        folder_.clear();
    }

    std::string folder_;
    std::string mount_;
    bool version_1_ = false;
    std::string why_not_;
};

}  // namespace dslaunch::test

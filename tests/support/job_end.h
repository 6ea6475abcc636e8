// Signals that end a job, and the check that nothing of it stays.
#pragma once

#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "launch/process/timing.h"
#include "support/catch.h"
#include "support/figures.h"
#include "support/job_process.h"

namespace dslaunch::test {

using namespace launch;

// The limit for all processes of a job to be gone, on a machine that may be busy: less than
// kLeaseMax, after which who is cut off from its launcher would end by itself.
inline constexpr int kGoneMaxMs = 50'000;
static_assert(std::chrono::milliseconds(kGoneMaxMs) < kLeaseMax);

// SET: SigBlk (held back) or ShdPnd (sent to the process and not taken) of /proc/PID/status.
inline bool has_signal(pid_t pid, const std::string& set, int number) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(file, line);)
        if (line.starts_with(set + ":"))
            return ((std::stoull(line.substr(set.size() + 1), nullptr, 16) >> (number - 1)) & 1U) !=
                   0;
    return false;
}

// The launcher has come to where it takes the signal itself; before that, it is the system's.
inline bool holds_signal(pid_t launcher, int number) {
    return has_signal(launcher, "SigBlk", number);
}

// Ctrl-C twice. Two signals at once would be one, as the kernel does not count them: the second is
// sent when the launcher has taken the first.
inline void press_twice(pid_t launcher) {
    REQUIRE(::kill(launcher, SIGINT) == 0);
    REQUIRE(wait_until([&] { return !has_signal(launcher, "ShdPnd", SIGINT); }));
    ::kill(launcher, SIGINT);
}

// Everything that the job had is gone; prints how long it took.
inline void check_gone(const std::vector<ProcessName>& all, const char* what) {
    const auto began = Steady::now();
    CHECK(wait_until([&] { return all_gone(all) && descendants(::getpid()).empty(); }, kGoneMaxMs));
    std::printf("%s: all gone after %.0f ms\n", what, milliseconds_since(began));
}

}  // namespace dslaunch::test

// Signals that end a job, and the check that nothing of it remains.
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
// kLeaseMax, after which processes that lost their launcher would end by themselves.
inline constexpr int kGoneMaxMs = 50'000;
static_assert(std::chrono::milliseconds(kGoneMaxMs) < kLeaseMax);

// True if SET of /proc/PID/status has NUMBER: SigBlk (held back) or ShdPnd (sent, not yet taken).
inline bool has_signal(pid_t pid, const std::string& set, int number) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(file, line);)
        if (line.starts_with(set + ":"))
            return ((std::stoull(line.substr(set.size() + 1), nullptr, 16) >> (number - 1)) & 1U) !=
                   0;
    return false;
}

// True once the launcher takes the signal itself; before that, the system does.
inline bool holds_signal(pid_t launcher, int number) {
    return has_signal(launcher, "SigBlk", number);
}

// Presses Ctrl-C twice. Two signals at once would be one, as the kernel does not count them: the
// second is sent when the launcher has taken the first.
inline void press_twice(pid_t launcher) {
    REQUIRE(::kill(launcher, SIGINT) == 0);
    REQUIRE(wait_until([&] { return !has_signal(launcher, "ShdPnd", SIGINT); }));
    ::kill(launcher, SIGINT);
}

// Checks that all of the job's processes are gone; prints how long it took.
inline void check_gone(const std::vector<ProcessName>& all, const char* what) {
    const auto began = Steady::now();
    CHECK(wait_until([&] { return all_gone(all) && descendants(::getpid()).empty(); }, kGoneMaxMs));
    std::printf("%s: all gone after %.0f ms\n", what, milliseconds_since(began));
}

}  // namespace dslaunch::test

// Signals that end a job, and the check that no process of the job is left.
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

// The longest time in which all processes of a job must have ended, on a machine that may be busy.
// It is less than kLeaseMax, after which processes without a launcher end by themselves.
inline constexpr int kGoneMaxMs = 50'000;
static_assert(std::chrono::milliseconds(kGoneMaxMs) < kLeaseMax);

// Returns true if the set of signals SET in /proc/PID/status contains NUMBER: SigBlk (held back) or
// ShdPnd (sent, but not yet taken).
inline bool has_signal(pid_t pid, const std::string& set, int number) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(file, line);)
        if (line.starts_with(set + ":"))
            return ((std::stoull(line.substr(set.size() + 1), nullptr, 16) >> (number - 1)) & 1U) !=
                   0;
    return false;
}

// Returns true when the launcher takes the signal itself. Before that, the system ends the
// launcher.
inline bool holds_signal(pid_t launcher, int number) {
    return has_signal(launcher, "SigBlk", number);
}

// Presses Ctrl-C twice. The kernel does not count equal signals that are pending, so the second one
// is sent when the launcher has taken the first. Two signals of kill() within a second count as one
// request, but two signals of a terminal count as two (base/machine/signal_repeats.h).
inline void press_twice(pid_t launcher) {
    REQUIRE(::sigqueue(launcher, SIGINT, sigval{}) == 0);
    REQUIRE(wait_until([&] { return !has_signal(launcher, "ShdPnd", SIGINT); }));
    ::sigqueue(launcher, SIGINT, sigval{});
}

// Checks that all processes of the job are gone, and prints how long this took.
inline void check_gone(const std::vector<ProcessName>& all, const char* what) {
    const auto began = Steady::now();
    CHECK(wait_until([&] { return all_gone(all) && descendants(::getpid()).empty(); }, kGoneMaxMs));
    std::printf("%s: all gone after %.0f ms\n", what, milliseconds_since(began));
}

}  // namespace dslaunch::test

// A training job that does not end by itself, for tests that stop, stall or kill parts of it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.h"
#include "support/train_job.h"

namespace dslaunch::test {

using namespace launch;

// A training of gpt.pt on two simulated hosts with two ranks each, without an end.
struct EndlessJob {
    TemporaryFolder folder;
    JobProcess process;

    explicit EndlessJob(const std::vector<std::string>& options = {})
        : process(folder, command(options)) {
        adopt_orphans();
    }
    [[nodiscard]] std::vector<std::string> command(const std::vector<std::string>& options) const {
        write_file(folder.path() + "/hostfile", "left slots=2\nright slots=2\n");
        std::vector<std::string> where = {"--hostfile", folder.path() + "/hostfile", "--launcher",
                                          "local"};
        where.insert(where.end(), options.begin(), options.end());
        return training_command(folder, where, fixture_archive("gpt"),
                                fixture_config(fixture_facts("gpt"), 1, 10'000'000));
    }
    [[nodiscard]] std::vector<std::string> metrics() const {
        std::ifstream file(folder.path() + "/out/metrics.jsonl");
        std::vector<std::string> lines;
        for (std::string line; std::getline(file, line);) lines.push_back(line);
        return lines;
    }
    [[nodiscard]] bool has_stepped() const { return metrics().size() >= 3; }
    // Waits until some steps are done.
    void await_steps() const {
        const bool stepped = wait_until([&] { return has_stepped(); });
        INFO(process.err());
        REQUIRE(stepped);
    }
    [[nodiscard]] std::vector<ProcessName> processes(const std::string& word) const {
        std::vector<ProcessName> found;
        for (const ProcessName& each : descendants(process.pid()))
            if (mentions(process_file(each.pid, "cmdline"), word)) found.push_back(each);
        return found;
    }
};

// The values of --timeout, in seconds, that are tried for a job. The timeout also holds while ranks
// set up. On a busy machine, one rank may then be later than another by more than the smaller
// value.
inline constexpr int kTimeoutsS[] = {5, 20};

struct TimedJob {
    int timeout_s = 0;
    std::unique_ptr<EndlessJob> job;
};

// Starts a job with the smallest --timeout in kTimeoutsS with which it does some steps.
inline TimedJob start_with_timeout() {
    for (const int timeout_s : kTimeoutsS) {
        auto job = std::make_unique<EndlessJob>(
            std::vector<std::string>{"--timeout", std::to_string(timeout_s)});
        int code = -1;
        const auto ended = [&] { return (code = job->process.wait(0)) != -1; };
        const bool over = wait_until([&] { return job->has_stepped() || ended(); });
        INFO(job->process.err());
        REQUIRE(over);
        if (code == -1) return {timeout_s, std::move(job)};
        REQUIRE(code == 69);
    }
    FAIL("no job with --timeout has done a step");
    return {};
}

}  // namespace dslaunch::test

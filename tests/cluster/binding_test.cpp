// Real ranks on this machine report the processors to which they are bound.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "launch/machine/machine_topology.h"
#include "support/catch.h"
#include "support/job_process.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

struct Outcome {
    int code = -1;
    std::vector<std::string> lines;  // lines of stdout, sorted by rank
    std::string err;
};

Outcome run(std::vector<std::string> options, const std::vector<std::string>& before = {}) {
    const TemporaryFolder folder;
    std::vector<std::string> words = {"env", "-u", "OMP_NUM_THREADS"};
    words.insert(words.end(), before.begin(), before.end());
    words.insert(words.end(), {kDslaunch, "--standalone", "--device", "cpu", "--num_gpus", "2"});
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(),
                 {"sh", "-c",
                  "echo ${OMP_NUM_THREADS-none} ${DSL_BINDING-none} $(grep Cpus_allowed_list "
                  "/proc/self/status)"});
    JobProcess job(folder, words);
    Outcome outcome;
    outcome.code = job.wait();
    outcome.err = job.err();
    outcome.lines = split(job.out(), '\n');
    std::sort(outcome.lines.begin(), outcome.lines.end());
    std::erase(outcome.lines, "");
    return outcome;
}

}  // namespace

TEST_CASE("a bound rank runs on its processors and no other") {
    const std::vector<int> ours = allowed_processors();
    const std::string all = processor_list_text(ours);
    const std::string first = std::to_string(ours.front());
    const Outcome bound = run({"--bind_core_list", first});
    INFO(bound.err);
    CHECK(bound.code == 0);
    CHECK(bound.lines ==
          std::vector<std::string>{fmt::format("[0] 1 {} Cpus_allowed_list: {}", first, first),
                                   fmt::format("[1] 1 {} Cpus_allowed_list: {}", first, first)});
    // A rank is bound only on request, and a nested job does not inherit a binding.
    const Outcome free = run({}, {"env", "DSL_BINDING=7"});
    CHECK(free.code == 0);
    CHECK(free.lines ==
          std::vector<std::string>{fmt::format("[0] none none Cpus_allowed_list: {}", all),
                                   fmt::format("[1] none none Cpus_allowed_list: {}", all)});
}

TEST_CASE("a given number of threads is obeyed, and so is who bound the launcher") {
    const std::string last = std::to_string(allowed_processors().back());
    const Outcome given =
        run({"--bind", "core"}, {"taskset", "-c", last, "env", "OMP_NUM_THREADS=5"});
    INFO(given.err);
    CHECK(given.code == 0);
    REQUIRE(given.lines.size() == 2);
    for (const std::string& line : given.lines) {
        CHECK(line.find(fmt::format(" 5 {} Cpus_allowed_list: {}", last, last)) !=
              std::string::npos);
    }
}

TEST_CASE("a processor that is not ours ends the job with its number") {
    const Outcome refused = run({"--bind_core_list", "60000"});
    CHECK(refused.code != 0);
    CHECK(refused.lines.empty());
    CHECK(refused.err.find("--bind_core_list 60000 contains processors 60000") !=
          std::string::npos);
}

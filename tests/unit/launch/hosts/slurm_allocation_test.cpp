#include "launch/hosts/slurm_allocation.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

using Names = std::vector<std::string>;
using Counts = std::vector<int>;

std::vector<int> slots_of(const SlurmAllocation& allocation) {
    std::vector<int> slots;
    for (const Host& host : allocation.hosts) slots.push_back(host.slots);
    return slots;
}

SlurmAllocation found(EnvironmentList variables, bool with_gpus = true) {
    variables.emplace_back("SLURM_JOB_ID", "12");
    auto allocation = find_slurm_allocation(variables, with_gpus);
    REQUIRE(allocation);
    return *allocation;
}

}  // namespace

TEST_CASE("a node list expands as scontrol show hostnames does") {
    struct Row {
        std::string text;
        Names names;
    };
    // The right side is the output of Slurm 22.05.
    const Row rows[] = {
        {"a", {"a"}},
        {"a[1-3,7],b02", {"a1", "a2", "a3", "a7", "b02"}},
        {"n[08-11]", {"n08", "n09", "n10", "n11"}},
        {"n[007]", {"n007"}},
        {"rack[1-2]n[1-2]", {"rack1n1", "rack1n2", "rack2n1", "rack2n2"}},
        {"gpu-a.site,gpu-b.site", {"gpu-a.site", "gpu-b.site"}},
    };
    for (const Row& row : rows) {
        INFO(row.text);
        CHECK(expand_nodelist(row.text) == row.names);
    }
}

TEST_CASE("a node list that is none is refused with its column") {
    struct Row {
        std::string text, message;
    };
    const Row rows[] = {
        {"", "empty"},
        {"a[1-3", "column 6: a `[` without `]`"},
        {"a1]", "column 3: a `]` without `[`"},
        {"a[3-1]", "runs backwards"},
        {"a[1-9999]", "more than 4096"},
        {"a[]", "column 3: a missing number"},
        {"a[x]", "column 3: a missing number"},
        {"a[1234567890]", "1 to 9 digits"},
        {"a,,b", "column 3: a missing host name"},
        {"a,", "a missing host name"},
        {"$(rm)", "column 1: a missing host name"},
        {"-oProxyCommand=x", "a missing host name"},
        {"a[1-4096]b[1-4096]", "too many hosts"},
        {"a[1-4096]" + std::string(1'000'000, 'x'), "a name that is too long"},
        {"a\x1b[1]", "column 1: a missing host name"},
    };
    for (const Row& row : rows) {
        INFO(row.text);
        CHECK_THROWS_WITH(expand_nodelist(row.text), Catch::Contains(row.message));
    }
}

TEST_CASE("tasks per node are written with repetitions") {
    CHECK(expand_task_counts("2(x3),1") == Counts{2, 2, 2, 1});
    CHECK(expand_task_counts("8") == Counts{8});
    CHECK(expand_task_counts("1,2,3(x2)") == Counts{1, 2, 3, 3});
    for (const std::string bad :
         {"", "x", "2(x", "2(3)", "0", "2(x0)", "2(x99999)", "2(x3)1", "-1"}) {
        INFO(bad);
        CHECK_THROWS_WITH(expand_task_counts(bad), Catch::Contains("N(xM)"));
    }
}

TEST_CASE("GPUs are counted from numbers, typed numbers and lists") {
    CHECK(count_slurm_gpus("8") == 8);
    CHECK(count_slurm_gpus("a100:8") == 8);
    CHECK(count_slurm_gpus("a100:4,h100:2") == 6);
    CHECK(count_slurm_gpus("0,1,2,3") == 4);
    CHECK(count_slurm_gpus("0,2-4") == 4);
    CHECK(count_slurm_gpus("3,") == 1);
    for (const char* bad : {"x", "a100:", "-1", "4-2,1", "99999"}) {
        INFO(bad);
        CHECK_FALSE(count_slurm_gpus(bad));
    }
}

TEST_CASE("an allocation's slots are its GPUs, else the tasks asked for, else one") {
    using Slots = SlurmAllocation::Slots;
    const std::pair<std::string, std::string> nodes{"SLURM_JOB_NODELIST", "ts[1-3]"};
    CHECK_FALSE(find_slurm_allocation({nodes}, true));
    CHECK_FALSE(find_slurm_allocation({{"SLURM_JOB_ID", "12"}}, true));
    CHECK(found({nodes}).job_id == "12");
    CHECK(found({nodes}).hosts[2].name == "ts3");

    const auto plain = found({nodes, {"SLURM_TASKS_PER_NODE", "1(x3)"}});
    CHECK(plain.slots == Slots::kUnknown);
    CHECK(slots_of(plain) == Counts{1, 1, 1});

    const EnvironmentList tasks = {
        nodes, {"SLURM_NTASKS", "5"}, {"SLURM_TASKS_PER_NODE", "2(x2),1"}};
    CHECK(found(tasks).slots == Slots::kTasks);
    CHECK(slots_of(found(tasks)) == Counts{2, 2, 1});

    EnvironmentList gpus = tasks;
    gpus.emplace_back("SLURM_GPUS_ON_NODE", "4");
    CHECK(found(gpus).slots == Slots::kGpus);
    CHECK(slots_of(found(gpus)) == Counts{4, 4, 4});
    CHECK(slots_of(found(gpus, false)) == Counts{2, 2, 1});
    CHECK(slots_of(found({nodes, {"SLURM_JOB_GPUS", "6"}})) == Counts{1, 1, 1});
    CHECK(slots_of(found({nodes, {"SLURM_JOB_GPUS", "6,7"}})) == Counts{2, 2, 2});
    CHECK(slots_of(found({nodes, {"SLURM_GPUS_PER_NODE", "h100:8"}})) == Counts{8, 8, 8});

    // GPUs per task and of the whole job, if Slurm does not say how many GPUs a node has.
    const EnvironmentList each = {nodes, {"SLURM_NTASKS", "6"}, {"SLURM_TASKS_PER_NODE", "2(x3)"}};
    const auto with = [&](EnvironmentList list, const char* name, const char* value) {
        list.emplace_back(name, value);
        return slots_of(found(list));
    };
    CHECK(with(each, "SLURM_GPUS_PER_TASK", "4") == Counts{8, 8, 8});
    CHECK(with(each, "SLURM_GPUS_PER_TASK", "a100:1") == Counts{2, 2, 2});
    CHECK(with(tasks, "SLURM_GPUS_PER_TASK", "4") == Counts{2, 2, 1});
    CHECK(with({nodes}, "SLURM_GPUS", "12") == Counts{4, 4, 4});
    CHECK(with({nodes}, "SLURM_GPUS", "13") == Counts{1, 1, 1});
    CHECK(with({nodes}, "SLURM_GPUS", "h100:6") == Counts{2, 2, 2});

    CHECK_THROWS_WITH(found({nodes, {"SLURM_NTASKS", "4"}, {"SLURM_TASKS_PER_NODE", "2(x2)"}}),
                      Catch::Contains("lists 3 hosts, but tasks for 2"));
    CHECK_THROWS_WITH(found({nodes, {"SLURM_GPUS_ON_NODE", "all"}}),
                      Catch::Contains("SLURM_GPUS_ON_NODE"));
}

TEST_CASE("of several copies in one step the first launches, on the step's hosts") {
    const EnvironmentList step = {{"SLURM_JOB_NODELIST", "ts[1-4]"},
                                  {"SLURM_STEP_NODELIST", "ts[2-3]"},
                                  {"SLURM_STEP_NUM_TASKS", "4"},
                                  {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}};
    EnvironmentList first = step;
    first.emplace_back("SLURM_PROCID", "0");
    EnvironmentList third = step;
    third.emplace_back("SLURM_PROCID", "2");
    REQUIRE(found(first).step);
    CHECK(found(first).step->task == 0);
    CHECK(found(third).step->task == 2);
    CHECK(found(third).step->tasks == 4);
    CHECK(slots_of(found(first)) == Counts{2, 2});
    CHECK(found(first).hosts[0].name == "ts2");
    // One task (a shell by srun --pty, a batch script) launches on the whole allocation.
    const auto shell = found({{"SLURM_JOB_NODELIST", "ts[1-4]"},
                              {"SLURM_STEP_NODELIST", "ts1"},
                              {"SLURM_STEP_NUM_TASKS", "1"},
                              {"SLURM_PROCID", "0"}});
    CHECK(shell.hosts.size() == 4);
    REQUIRE(shell.step);
    CHECK(shell.step->tasks == 1);
    // The shells of salloc and sbatch are steps that no srun made.
    for (const char* number : {"4294967290", "4294967291"}) {
        CAPTURE(number);
        CHECK_FALSE(found({{"SLURM_JOB_NODELIST", "ts[1-4]"},
                           {"SLURM_STEP_NUM_TASKS", "1"},
                           {"SLURM_STEP_ID", number}})
                        .step);
    }
    CHECK_FALSE(found({{"SLURM_JOB_NODELIST", "ts[1-4]"}}).step);
}

// Variables that another launcher has set for ranks of its own.
#include "launcher/run/foreign_ranks.h"

#include "support/catch.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::launcher;

namespace {

Machine machine_with(launch::EnvironmentList environment) {
    Machine machine;
    machine.environment = std::move(environment);
    return machine;
}

}  // namespace

TEST_CASE("ranks of another launcher have no effect, and torchrun's copies are refused") {
    CHECK(foreign_ranks_note(machine_with({})).empty());
    CHECK(foreign_ranks_note(machine_with({{"WORLD_SIZE", "4"}})).empty());
    CHECK(foreign_ranks_note(machine_with({{"RANK", "0"}, {"WORLD_SIZE", "1"}})).empty());
    CHECK_THAT(foreign_ranks_note(machine_with({{"RANK", "1"}, {"WORLD_SIZE", "4"}})),
               Catch::StartsWith("RANK=1 and WORLD_SIZE=4 in the environment come from another "
                                 "launcher and have no effect"));
    const launch::EnvironmentList copy = {
        {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"TORCHELASTIC_RUN_ID", "none"}};
    CHECK_THAT(test::error_of(ExitCode::kUsage,
                              [&] { static_cast<void>(foreign_ranks_note(machine_with(copy))); }),
               Catch::Contains("started 2 copies of dslaunch (this copy has RANK=1)") &&
                   Catch::Contains("dslaunch --nproc_per_node N TARGET"));
    const launch::EnvironmentList of_mpich = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
    const auto told = [](const launch::EnvironmentList& variables) {
        return test::error_of(ExitCode::kUsage, [&] {
            static_cast<void>(foreign_ranks_note(machine_with(variables)));
        });
    };
    CHECK_THAT(told(of_mpich), Catch::Contains("2 copies of dslaunch (this copy has PMI_RANK=1)"));
    CHECK(told({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}) == "accepted");
    launch::EnvironmentList of_slurm = of_mpich;
    of_slurm.emplace_back("SLURM_JOB_ID", "7");
    CHECK(told(of_slurm) == "accepted");
    // A program that runs as a rank of dslaunch may start further jobs.
    launch::EnvironmentList own = copy;
    own.emplace_back("DSL_JOB_ID", "a");
    CHECK(foreign_ranks_note(machine_with(own)).empty());
}

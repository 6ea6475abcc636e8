#include "launcher/run/foreign_ranks.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/error.h"
#include "base/screen.h"
#include "base/text.h"
#include "launch/plan/worker_environment.h"

namespace dslaunch::launcher {
namespace {

constexpr const char* kOfTorchrun = "TORCHELASTIC_RUN_ID";

bool has_foreign(const Machine& machine) {
    return machine.variable("RANK") && !machine.variable(launch::kJobIdVariable);
}

}  // namespace

std::string foreign_ranks_note(const Machine& machine) {
    if (const int64_t copies = machine.number("PMI_SIZE");
        copies > 1 && machine.variable("PMI_RANK") && !machine.variable(launch::kJobIdVariable) &&
        !machine.variable("SLURM_JOB_ID"))
        fail(ExitCode::kUsage,
             "mpirun (MPICH) started {} copies of dslaunch (this copy has PMI_RANK={}), but a "
             "single dslaunch starts all ranks; leave mpirun out: dslaunch --nproc_per_node N "
             "TARGET, with --hostfile FILE for several hosts",
             copies, printable(*machine.variable("PMI_RANK")));
    const int64_t ranks = machine.number("WORLD_SIZE");
    if (!has_foreign(machine) || ranks < 2) return "";
    if (machine.variable(kOfTorchrun))
        fail(ExitCode::kUsage,
             "torchrun or accelerate started {} copies of dslaunch (this copy has RANK={}), but a "
             "single dslaunch starts all ranks; use dslaunch in place of torchrun: dslaunch "
             "--nproc_per_node N TARGET",
             ranks, printable(*machine.variable("RANK")));
    return fmt::format(
        "RANK={} and WORLD_SIZE={} in the environment come from another launcher and have no "
        "effect: dslaunch numbers its own ranks (unset RANK WORLD_SIZE removes this note)",
        printable(*machine.variable("RANK")), ranks);
}

void forget_foreign_ranks(const Machine& machine) {
    if (!has_foreign(machine) || machine.variable(kOfTorchrun)) return;
    if (const std::string note = foreign_ranks_note(machine); !note.empty())
        print_message("dslaunch: " + note);
    for (const char* name :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK"})
        ::unsetenv(name);
}

}  // namespace dslaunch::launcher

// dsworker, the program that contains LibTorch: checks that it exists, and replaces this process by
// it.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "launch/machine/torch_place.h"
#include "launch/plan/worker_environment.h"
#include "launcher/run/build_job.h"
#include "launcher/run/commands.h"
#include "launcher/run/foreign_ranks.h"

namespace dslaunch::launcher {

void require_worker(const std::string& path) {
    if (access(path.c_str(), X_OK) == 0) return;
    fail(ExitCode::kSetup,
         "cannot start {}: {}; it must be in the same folder as dslaunch, and is built together "
         "with it if LibTorch is found (`make build`)",
         path, errno_text(errno));
}

void become_worker(std::span<const std::string> words) {
    const Machine machine = Machine::this_one();
    const std::string worker = machine.binary_directory + "/dsworker";
    require_worker(worker);
    forget_foreign_ranks(machine);
    launch::EnvironmentList environment = launch::own_environment();
    launch::limit_spinning(environment);
    launch::lead_to_torch(worker, environment);
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    std::string own_name = "dslaunch";  // the name that the user typed, for dsworker's messages
    std::vector<char*> argv = {own_name.data()};
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execv(worker.c_str(), argv.data());
    fail(ExitCode::kSetup, "cannot start {}: {}", worker, errno_text(errno));
}

}  // namespace dslaunch::launcher

#include "worker/rank_process.h"

#include <c10/util/Logging.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/log.h"
#include "base/machine/files_of_process.h"
#include "launch/process/timing.h"
#include "launch/protocol/control.h"

namespace dslaunch::worker {

launch::WorkerEnvironment begin_rank() {
    // Hides the warnings of c10d, for example about every address that has no name. dslaunch
    // reports c10d's errors itself.
    ::setenv("TORCH_CPP_LOG_LEVEL", "ERROR", /*overwrite=*/0);
    c10::initLogging();
    if (const char* level = std::getenv(launch::kLogLevelVariable))
        set_log_level(parse_log_level(level));
    return launch::WorkerEnvironment::from_process();
}

void end_rank(runtime::Reporter& reporter, const job::RankFailure& failure, const char* speaker) {
    // The failure is reported before the log line is written, so that the launcher does not repeat
    // it.
    reporter.failure(failure.code, failure.message);
    log_error(speaker, "{}", failure.message);
    // Lanes and libraries may be stuck in calls that cannot be ended, so no destructor runs.
    std::fflush(nullptr);
    remove_files_of_process();
    ::_exit(static_cast<int>(failure.code));
}

int run_as_rank(const std::function<void(RankProcess& process)>& work) {
    RankProcess process;
    process.environment = launch::WorkerEnvironment::from_process();
    if (process.environment.control_fd < 0) {
        work(process);
        return 0;
    }
    process.environment = begin_rank();
    process.reporter = runtime::make_control_reporter(process.environment.control_fd);
    try {
        const std::jthread heartbeats =
            runtime::send_heartbeats(*process.reporter, launch::kHeartbeatInterval, [] {
                return launch::Heartbeat{0, 1, "computing tokens"};
            });
        work(process);
    } catch (...) {
        const job::RankFailure failure = job::failure_of(std::current_exception());
        if (process.on_failure)
            process.on_failure(
                fmt::format("rank {} failed: {}", process.environment.rank, failure.message));
        end_rank(*process.reporter, failure, "rank");
    }
    return 0;
}

}  // namespace dslaunch::worker

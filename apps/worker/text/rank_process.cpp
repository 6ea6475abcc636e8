#include "worker/text/rank_process.h"

#include <c10/util/Logging.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "base/error.h"
#include "base/log.h"
#include "launch/process/timing.h"
#include "runtime/train/heartbeat.h"
#include "worker/rank_failure.h"

namespace dslaunch::worker {

namespace {

[[noreturn]] void end_rank(const RankProcess& process, const std::exception_ptr& error) {
    const auto [code, message] = failure_of(error);
    if (process.on_failure)
        process.on_failure(fmt::format("rank {} failed: {}", process.environment.rank, message));
    process.reporter->failure(code, message);  // before the log line, so that the launcher does not
                                               // repeat it
    log_error("rank", "{}", message);
    // Lanes may be stuck in calls that nothing can end, so no destructor runs.
    std::fflush(nullptr);
    ::_exit(static_cast<int>(code));
}

}  // namespace

int run_as_rank(const std::function<void(RankProcess& process)>& work) {
    RankProcess process;
    process.environment = launch::WorkerEnvironment::from_process();
    if (process.environment.control_fd < 0) {
        work(process);
        return 0;
    }
    ::setenv("TORCH_CPP_LOG_LEVEL", "ERROR", /*overwrite=*/0);
    c10::initLogging();
    if (const char* level = std::getenv(launch::kLogLevelVariable))
        set_log_level(parse_log_level(level));
    process.reporter = runtime::make_control_reporter(process.environment.control_fd);
    try {
        const runtime::HeartbeatSender heartbeats(
            *process.reporter, launch::kHeartbeatInterval, [] {
                return launch::Heartbeat{0, 1, "computing tokens"};
            });
        work(process);
    } catch (...) {
        end_rank(process, std::current_exception());
    }
    return 0;
}

}  // namespace dslaunch::worker

// A process is described and ended by its id and start time, if it is this user's.
#include "launch/agent/device_report.h"

#include <unistd.h>

#include <csignal>

#include "launch/agent/end_process.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/skip.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

// A shell that runs SCRIPT, and has reported that it does.
class Running {
  public:
    explicit Running(const std::string& script)
        : process_(folder_, {"env", "DSL_LAUNCH_ID=launch-7", "RANK=3", "sh", "-c",
                             script + "; echo ready; while :; do sleep 0.05; done"}) {
        REQUIRE(wait_until([&] { return process_.out().find("ready") != std::string::npos; }));
        name_ = name_process(process_.pid());
    }
    [[nodiscard]] const ProcessName& name() const { return name_; }
    [[nodiscard]] bool lives() const { return name_process(name_.pid) == name_; }

  private:
    TemporaryFolder folder_;
    JobProcess process_;
    ProcessName name_;
};

const DeviceProcess& found(const DeviceUseReport& report, const ProcessName& name) {
    for (const DeviceProcess& process : report.processes)
        if (process.name == name) return process;
    FAIL("process " << name.pid << " is not in the report");
    return report.processes.front();
}

}  // namespace

TEST_CASE("the process that is asked about is told with user, program, age, launch and rank") {
    const Running running("true");
    const DeviceUseReport report = report_devices({running.name().pid});
    const DeviceProcess& process = found(report, running.name());
    CHECK(process.is_own);
    CHECK_FALSE(process.user.empty());
    CHECK(process.command == "sh");
    CHECK(process.age_s >= 0);
    CHECK(process.age_s < kHangMs / 1000);
    CHECK(process.launch_id == "launch-7");
    CHECK(process.rank == 3);
    CHECK(process.holds.empty());
    // No process has this number.
    const DeviceUseReport none = report_devices({4'194'304});
    REQUIRE_FALSE(none.processes.empty());
    CHECK(none.processes.back().name.start_time == 0);
    // Decoding the encoded report gives the same report.
    const DeviceUseReport back = decode<DeviceUseReport>(encode(report));
    CHECK(found(back, running.name()).launch_id == "launch-7");
}

TEST_CASE("TERM ends a process, KILL one that ignores it, and a stopped one too") {
    int waits = 0;
    const auto count = [&] { ++waits; };
    const Running willing("true");
    const EndProcessReply asked = end_process({willing.name(), 20'000}, count);
    CHECK(asked.has_ended);
    CHECK_FALSE(asked.was_killed);
    CHECK_FALSE(willing.lives());
    const Running stubborn("trap '' TERM");
    const EndProcessReply killed = end_process({stubborn.name(), 100}, count);
    CHECK(killed.has_ended);
    CHECK(killed.was_killed);
    CHECK_FALSE(stubborn.lives());
    CHECK(waits > 0);
    const Running stopped("true");
    ::kill(stopped.name().pid, SIGSTOP);
    CHECK(end_process({stopped.name(), 20'000}, count).has_ended);
}

TEST_CASE("a number that went to another process, this process and init are never signalled") {
    const auto refused = [](const ProcessName& name) {
        return end_process({name, 0}, [] {}).error;
    };
    const Running running("true");
    ProcessName earlier = running.name();
    --earlier.start_time;
    CHECK(refused(earlier) == "it has ended, and another process now has its pid");
    CHECK(running.lives());
    CHECK(refused(name_process(::getpid())) ==
          "it is this command itself, or a parent process of this command");
    CHECK(refused(name_process(::getppid())) ==
          "it is this command itself, or a parent process of this command");
    CHECK(refused({1, name_process(1).start_time}) == "there is no such process");
    CHECK(refused({0, 5}) == "there is no such process");
    CHECK(refused({-1, 5}) == "there is no such process");
    CHECK(refused({running.name().pid, 0}) == "there is no such process");
}

TEST_CASE("another user's process is told as such, and not ended") {
    if (::geteuid() != 0)
        return report_skipped("another user's process", "only root can be two users");
    const pid_t child = ::fork();
    if (child == 0) {
        const bool other = ::setgid(65'534) == 0 && ::setuid(65'534) == 0;
        if (!other) ::_exit(1);
        for (;;) ::pause();
    }
    REQUIRE(wait_until([&] { return !report_devices({child}).processes.front().is_own; }));
    const ProcessName name = name_process(child);
    CHECK_THAT(end_process({name, 0}, [] {}).error, Catch::Contains("only its owner can end it"));
    CHECK(name_process(child) == name);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
}

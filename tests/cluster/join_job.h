// A job whose agents are started by hand, and which restarts when one of them is gone.
#pragma once

#include <sys/stat.h>

#include <csignal>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "launch/plan/join_token.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/listener.h"

namespace dslaunch::test {

// A job of one rank that waits for agents and may restart once. The rank of the first attempt
// leaves its own id, or the id of a setsid grandchild. The rank of the second attempt reports which
// of these processes still live.
class JoinJob {
  public:
    explicit JoinJob(const std::string& first_attempt) {
        std::ofstream(token()) << make_token() << "\n";
        ::chmod(token().c_str(), 0600);
        const std::string script =
            "PIDS=" + pids() + "; case $TORCHELASTIC_RESTART_COUNT in 0) " + first_attempt +
            ";; *) for pid in $(cat " + pids() +
            "); do grep -qs '^State:.[RSD]' /proc/$pid/status && echo BESIDE $pid; done; exit 0;; "
            "esac";
        process_ = std::make_unique<JobProcess>(
            folder_, std::vector<std::string>{"env",
                                              "XDG_STATE_HOME=" + state_.path(),
                                              dslaunch(),
                                              "--launcher",
                                              "join",
                                              "--listen",
                                              address(port_),
                                              "--token-file",
                                              token(),
                                              "--nnodes",
                                              "1",
                                              "--num_gpus",
                                              "1",
                                              "--device",
                                              "cpu",
                                              "--max-restarts",
                                              "1",
                                              "sh",
                                              "-c",
                                              script});
    }
    [[nodiscard]] std::string pids() const { return folder_.path() + "/pids"; }
    [[nodiscard]] int port() const { return port_; }
    [[nodiscard]] JobProcess& process() { return *process_; }
    // Returns the command of an agent that finds the launcher at PORT.
    [[nodiscard]] std::vector<std::string> agent(int port) const {
        return {dslaunch(), "agent", "--join", address(port), "--token-file", token()};
    }
    // Waits for the one process that the first attempt leaves, and returns it.
    [[nodiscard]] ProcessName left() const {
        REQUIRE(wait_until([&] { return recorded_processes(folder_).size() == 1; }));
        return recorded_processes(folder_).front();
    }
    // Checks that the second attempt has ended, and that LEFT was gone before this attempt began.
    void check_end(const JobProcess& next, const ProcessName& left) {
        const int code = process_->wait();
        INFO(process_->err() << process_->out() << next.err());
        CHECK(code == 0);
        CHECK(process_->err().find("restart 1 of 1") != std::string::npos);
        CHECK(process_->out().find("BESIDE") == std::string::npos);
        CHECK(name_process(left.pid) != left);
        CHECK_THAT(process_->err(),
                   Catch::Contains("ended processes that an earlier attempt left running"));
        signal_process(left, SIGKILL);
    }

  private:
    [[nodiscard]] static std::string dslaunch() { return std::string(binary_dir()) + "/dslaunch"; }
    [[nodiscard]] static std::string address(int port) {
        return "127.0.0.1:" + std::to_string(port);
    }
    [[nodiscard]] std::string token() const { return folder_.path() + "/token"; }

    TemporaryFolder folder_;
    TemporaryFolder state_;
    int port_ = listen_on_loopback().port;
    std::unique_ptr<JobProcess> process_;
};

// Kills the guardian GUARDIAN and its agent at the same moment, so that neither reacts to the
// other's end.
inline void kill_with_its_guardian(JobProcess& guardian) {
    std::vector<ProcessName> killed = {name_process(guardian.pid())};
    for (const ProcessName& below : descendants(guardian.pid())) {
        if (process_file(below.pid, "cmdline").find("--join") != std::string::npos)
            killed.push_back(below);
    }
    REQUIRE(killed.size() == 2);
    for (const int signal : {SIGSTOP, SIGKILL}) {
        for (const ProcessName& process : killed) signal_process(process, signal);
    }
    CHECK(guardian.wait() == 128 + SIGKILL);
}

}  // namespace dslaunch::test

// A whole push: reach the hosts, give dslaunch to those that lack it, send the files, and see that
// the programs start there. Below `dslaunch push` and `run --push`.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launch/push/push_sender.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

struct PushJob {
    std::vector<HostAddress> hosts;
    std::function<std::unique_ptr<Transport>()> make_transport;  // a new one each time
    std::vector<PushFile> files;
    std::string check_program;  // not empty: started with --help on each host at the end
    std::chrono::milliseconds connect_max{30'000};
    int signal_fd = -1;  // see Fleet
};

struct PushedHost {
    bool got_dslaunch = false;  // true: the host had none, or another one
    PushResult result;
};

// One entry a host. Throws Error{kInterrupted} after a signal; kInput, kSetup for what is wrong
// here.
[[nodiscard]] std::vector<PushedHost> run_push(const PushJob& job);

}  // namespace dslaunch::launch

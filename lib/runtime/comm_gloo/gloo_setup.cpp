#include "runtime/comm_gloo/gloo_setup.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/error.h"
#include "base/text/torch_reason.h"

namespace dslaunch::runtime {

using c10d::ProcessGroupGloo;

std::chrono::milliseconds gloo_limit(Duration duration) {
    return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(duration),
                    std::chrono::milliseconds(1));
}

c10::intrusive_ptr<c10d::Store> open_store(const launch::WorkerEnvironment& environment,
                                           Duration limit) {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(environment.master_port);
    options.isServer = environment.rank == 0;
    options.waitWorkers = false;
    options.timeout = gloo_limit(limit);
    if (options.isServer && environment.rendezvous_fd >= 0)
        options.masterListenFd = environment.rendezvous_fd;
    try {
        return c10::make_intrusive<c10d::TCPStore>(environment.master_address, options);
    } catch (const std::exception& error) {
        if (options.isServer)
            fail(ExitCode::kSetup, "rank 0 cannot serve the rendezvous on {} port {}: {}",
                 environment.master_address, environment.master_port, torch_reason(error));
        fail(ExitCode::kHosts,
             "rank {} cannot reach the rendezvous on {} port {}: {}; is rank 0 alive, and does a "
             "firewall let this port through?",
             environment.rank, environment.master_address, environment.master_port,
             torch_reason(error));
    }
}

c10::intrusive_ptr<ProcessGroupGloo::Options> gloo_options(const std::string& address, int threads,
                                                           Duration limit) {
    std::signal(SIGPIPE, SIG_IGN);
    auto options = ProcessGroupGloo::Options::create(gloo_limit(limit));
    const char* const interface = std::getenv("GLOO_SOCKET_IFNAME");
    options->devices.push_back(interface != nullptr && *interface != '\0'
                                   ? ProcessGroupGloo::createDeviceForInterface(interface)
                                   : ProcessGroupGloo::createDeviceForHostname(address));
    options->threads = threads;
    return options;
}

}  // namespace dslaunch::runtime

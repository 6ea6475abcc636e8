// Opens c10d's store and Gloo's device, which every process group over Gloo needs. Internal to this
// folder, because it includes LibTorch types.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "base/clock.h"
#include "launch/plan/worker_environment.h"

namespace dslaunch::runtime {

// The store of a job, for headers that do not include LibTorch.
struct JobStore {
    c10::intrusive_ptr<c10d::Store> store;
};

// Returns DURATION as a limit for c10d: at least a millisecond, since zero would mean no limit.
[[nodiscard]] std::chrono::milliseconds gloo_limit(Duration duration);

// Opens the store of the job in ENVIRONMENT. Rank 0 serves the store, on ENVIRONMENT's listening
// socket if it has one. LIMIT is the longest wait of a call to the store. Throws Error{kSetup} if
// rank 0 cannot serve the store, and Error{kHosts} if another rank cannot reach it.
[[nodiscard]] c10::intrusive_ptr<c10d::Store> open_store(
    const launch::WorkerEnvironment& environment, Duration limit);

// Returns options with one device: the interface that GLOO_SOCKET_IFNAME names, or else the
// interface with ADDRESS. THREADS is the number of threads that run Gloo's own collectives. LIMIT
// is the longest wait in a collective.
//
// From then on the process ignores SIGPIPE. Gloo writes to its sockets without MSG_NOSIGNAL, so if
// a peer ended between two writes, the signal would end this rank too, without any report about the
// peer.
[[nodiscard]] c10::intrusive_ptr<c10d::ProcessGroupGloo::Options> gloo_options(
    const std::string& address, int threads, Duration limit);

}  // namespace dslaunch::runtime

// c10d's store and Gloo's device, with which each group of processes over Gloo starts. Internal to
// this folder: it shows LibTorch.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "base/clock.h"
#include "launch/plan/worker_environment.h"

namespace dslaunch::runtime {

// The store of a job, for headers that do not show LibTorch.
struct JobStore {
    c10::intrusive_ptr<c10d::Store> store;
};

// Returns DURATION as a limit of c10d, at least a millisecond, since zero would mean no limit.
[[nodiscard]] std::chrono::milliseconds gloo_limit(Duration duration);

// Opens the store that rank 0 of ENVIRONMENT's job serves, on its socket that listens already if it
// has one. LIMIT is the longest wait of a call to it. Throws Error{kSetup} on rank 0 if it cannot
// be served, Error{kHosts} on another rank if it cannot be reached.
[[nodiscard]] c10::intrusive_ptr<c10d::Store> open_store(
    const launch::WorkerEnvironment& environment, Duration limit);

// Returns options with one device: the interface that GLOO_SOCKET_IFNAME names, or else ADDRESS's.
// THREADS run Gloo's own collectives; LIMIT is the longest wait of one.
//
// The process ignores SIGPIPE from then on. Gloo writes to its sockets without MSG_NOSIGNAL, and a
// peer that ends between two writes would end this rank too, without a word of the peer.
[[nodiscard]] c10::intrusive_ptr<c10d::ProcessGroupGloo::Options> gloo_options(
    const std::string& address, int threads, Duration limit);

}  // namespace dslaunch::runtime

// All ranks of a job as one group of c10d: the store that rank 0 serves on the socket its agent
// bound, as a board, and Gloo's collectives over it. `dslaunch health` uses it; training joins
// hosts by bridges (rendezvous.h) instead. Data path: worker environment -> [here] -> pair search,
// sweep. Threads: any for the board, one for the collectives.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "launch/plan/worker_environment.h"
#include "runtime/comm/board.h"
#include "runtime/comm/health_collectives.h"

namespace dslaunch::runtime {

class WorldGroup final : public Board {
  public:
    // Rank 0 serves, the others connect. Throws Error{kHosts} naming address and port if it cannot
    // be reached within LIMIT, {kSetup} if rank 0 cannot serve. Takes over the environment's
    // rendezvous descriptor.
    WorldGroup(const launch::WorkerEnvironment& environment, Duration limit);
    WorldGroup(const WorldGroup&) = delete;
    WorldGroup& operator=(const WorldGroup&) = delete;
    ~WorldGroup() override;

    void set(const std::string& key, const std::string& value) override;
    [[nodiscard]] std::optional<std::string> get(const std::string& key, Duration limit) override;

    // Returns this host's address by which it reaches rank 0's host, in digits.
    [[nodiscard]] const std::string& address() const { return address_; }

    // Connects every rank to every other. LIMIT applies to this call and to each operation. Throws
    // Error{kHang} or {kPeerLost}. Binds the interface that GLOO_SOCKET_IFNAME names, else
    // address(). The group must outlive the result.
    [[nodiscard]] std::unique_ptr<HealthCollectives> open_gloo(Duration limit);

  private:
    struct Store;
    int rank_;
    int world_size_;
    std::string address_;
    std::unique_ptr<Store> store_;
};

}  // namespace dslaunch::runtime

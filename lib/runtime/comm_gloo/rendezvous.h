// The rendezvous of ranks on several hosts: a key-value store that rank 0 serves on the socket that
// its agent bound, and the connections that are opened through it. These are the Gloo links of
// training, which join hosts by bridges, or the collectives of all ranks that `dslaunch health`
// tries. A job that trains on one host does not need it and opens no socket. Data path: worker
// environment -> rendezvous -> links -> collectives. Threads: any thread may use the board, one
// thread at a time the rest.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "launch/plan/worker_environment.h"
#include "runtime/comm/board.h"
#include "runtime/comm/link.h"
#include "runtime/comm/ranks/topology.h"

namespace dslaunch::runtime {

struct JobStore;  // gloo_setup.h

// A rank's place on a link that the rendezvous opens.
struct LinkPlace {
    std::string name;
    int node = 0;  // this rank's node on the link
    int node_count = 1;
};

// The store of a job, and the connections opened through it.
class Rendezvous final : public Board {
  public:
    // Serves the store if this is rank 0, and connects to it on other ranks. Rank 0 uses the bound
    // and listening socket in ENVIRONMENT if there is one. TIME_LIMIT bounds each wait, here and in
    // the links. STREAMS is the number of connections from one host to another; the host's bridges
    // divide them among themselves. With 0, a single connection is used on loopback; on a network,
    // the first bridges measure how many connections are needed for the full rate. All ranks use
    // the value that node 0's first bridge has. Throws Error{kHosts}, naming address and port, if
    // the store cannot be reached in time, and Error{kSetup} if rank 0 cannot serve it. Blocks for
    // at most the time limit.
    Rendezvous(const launch::WorkerEnvironment& environment, Duration time_limit, int streams = 1);
    Rendezvous(const Rendezvous&) = delete;
    Rendezvous& operator=(const Rendezvous&) = delete;
    ~Rendezvous() override;

    void set(const std::string& key, const std::string& value) override;
    [[nodiscard]] std::optional<std::string> get(const std::string& key, Duration limit) override;
    // Waits for KEY and returns its value. Throws Error{kHang}, naming KEY, after the time limit,
    // and Error{kPeerLost} if rank 0 is gone.
    [[nodiscard]] std::string get(const std::string& key);

    // Returns the address by which other hosts reach this one, in numeric form. Throws
    // Error{kHosts} if there is no route to the master.
    [[nodiscard]] std::string own_address() const;
    // Opens the link between this bridge and the bridges with the same index on the other hosts.
    // All these bridges call it. The link binds to the interface that GLOO_SOCKET_IFNAME names, or
    // else to the address from which this host reaches the master. Throws Error{kSetup} if only
    // some hosts have loopback addresses, and Error{kPeerLost} or Error{kHang} if a bridge does not
    // connect.
    [[nodiscard]] std::unique_ptr<Link> open_link();
    // Opens a link between all ranks that call it with the same name; a name may be used once. It
    // uses the addresses from open_link(), which local rank 0 of each host must have called before.
    // Throws the errors of open_link() without arguments.
    [[nodiscard]] std::unique_ptr<Link> open_link(const LinkPlace& place);
    // Connects every rank to every other. LIMIT applies to this call and to each operation. Throws
    // Error{kHang} or {kPeerLost}. Binds to the interface that GLOO_SOCKET_IFNAME names, or else to
    // own_address(). This object must outlive the result.
    [[nodiscard]] std::unique_ptr<HealthCollectives> open_collectives(Duration limit);

  private:
    [[nodiscard]] std::string agree_on_addresses();
    void agree_on_streams(const std::string& address);
    [[nodiscard]] std::unique_ptr<Link> connect(const LinkPlace& place, const std::string& address);

    launch::WorkerEnvironment environment_;
    Topology topology_;
    Duration time_limit_;
    int streams_;
    std::unique_ptr<JobStore> store_;
};

}  // namespace dslaunch::runtime

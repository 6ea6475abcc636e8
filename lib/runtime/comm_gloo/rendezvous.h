// The meeting of ranks on several hosts: a key-value store that rank 0 serves on the socket its
// agent bound, and what is opened through it: the Gloo links of training, which join hosts by
// bridges, or the collectives of all ranks that `dslaunch health` tries. A job that trains on one
// host does not meet and opens no socket. Data path: worker environment -> rendezvous -> links
// -> collectives. Threads: any for the board, one at a time for the rest.
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

struct LinkPlace {
    std::string name;
    int node = 0;  // this rank's node on the link
    int node_count = 1;
};

class Rendezvous final : public Board {
  public:
    // Rank 0 serves, taking over its bound, listening socket if ENVIRONMENT has one; the others
    // connect. TIME_LIMIT bounds each wait, here and in the links. STREAMS are the connections of a
    // host to another, which its bridges share; 0: as many as fill the network path, which the
    // first bridges measure, or 1 on loopback. The number that node 0's first bridge gets counts.
    // Throws Error{kHosts} naming address and port if the store cannot be reached in time,
    // Error{kSetup} if rank 0 cannot serve. Blocks at most the time limit.
    Rendezvous(const launch::WorkerEnvironment& environment, Duration time_limit, int streams = 1);
    Rendezvous(const Rendezvous&) = delete;
    Rendezvous& operator=(const Rendezvous&) = delete;
    ~Rendezvous() override;

    void set(const std::string& key, const std::string& value) override;
    [[nodiscard]] std::optional<std::string> get(const std::string& key, Duration limit) override;
    // Waits for the key. Throws Error{kHang} naming it after the time limit, Error{kPeerLost} if
    // rank 0 is gone.
    [[nodiscard]] std::string get(const std::string& key);

    // Returns the address by which other hosts reach this one, in digits. Throws Error{kHosts} if
    // no route leads to the master.
    [[nodiscard]] std::string own_address() const;
    // Opens the link between this bridge and the same bridge of every other host. All of them call
    // it. The link binds the interface that GLOO_SOCKET_IFNAME names, else the address from which
    // this host reaches the master. Throws Error{kSetup} if only some hosts have loopback
    // addresses, Error{kPeerLost} or {kHang} if the bridges do not meet.
    [[nodiscard]] std::unique_ptr<Link> open_link();
    // Opens a link between all ranks that pass the same NAME, which is used once. Local rank 0 of
    // each host must have called open_link() before, whose addresses this one uses. Throws the same
    // errors.
    [[nodiscard]] std::unique_ptr<Link> open_link(const LinkPlace& place);
    // Connects every rank to every other. LIMIT applies to this call and to each operation. Throws
    // Error{kHang} or {kPeerLost}. Binds the interface that GLOO_SOCKET_IFNAME names, else
    // own_address(). This must outlive the result.
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

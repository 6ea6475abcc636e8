// The meeting of ranks on several hosts: a key-value store that rank 0 serves on the socket its
// agent bound, and the Gloo links that are opened through it. A job on one host makes none of this
// and opens no socket. Data path: worker environment -> rendezvous -> links -> collectives.
// Threads: one at a time.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/clock.h"
#include "runtime/comm/host/hang_limit.h"
#include "runtime/comm/link.h"
#include "runtime/comm/ranks/topology.h"

namespace dslaunch::runtime {

struct RendezvousOptions {
    std::string master_address = "127.0.0.1";
    int master_port = 0;
    // Rank 0's bound, listening socket, taken over. -1 lets rank 0 listen on master_port itself.
    int listening_fd = -1;
    Duration time_limit = kHangLimit;  // limit of each wait, here and in the links
    // Connections of a host to another, which its bridges share; 0: as many as fill the way, which
    // the first bridges measure, or 1 on loopback. What node 0's first bridge is told counts.
    int streams = 1;
};

struct LinkPlace {
    std::string name;
    int node = 0;  // this rank's node on the link
    int node_count = 1;
};

class Rendezvous {
  public:
    // Rank 0 serves, the others connect. Throws Error{kHosts} naming address and port if the store
    // cannot be reached in time, Error{kSetup} if rank 0 cannot serve. Blocks at most the time
    // limit.
    Rendezvous(const Topology& topology, const RendezvousOptions& options);
    Rendezvous(const Rendezvous&) = delete;
    Rendezvous& operator=(const Rendezvous&) = delete;
    ~Rendezvous();

    void set(const std::string& key, const std::string& value);
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

  private:
    [[nodiscard]] std::string agree_on_addresses();
    void agree_on_streams(const std::string& address);
    [[nodiscard]] std::unique_ptr<Link> connect(const LinkPlace& place, const std::string& address);

    struct Store;
    Topology topology_;
    RendezvousOptions options_;
    std::unique_ptr<Store> store_;
};

}  // namespace dslaunch::runtime

// How ranks of several hosts find each other: a key-value store that rank 0 serves on the
// socket its agent bound, and the Gloo links that are opened through it. A job on one host makes
// none of this and opens no socket. Where it stands: worker environment -> rendezvous -> links ->
// collectives. Threads: one at a time.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/clock.h"
#include "runtime/comm/link.h"
#include "runtime/comm/ranks/topology.h"

namespace dslaunch::runtime {

struct RendezvousOptions {
    std::string master_address = "127.0.0.1";
    int master_port = 0;
    int listening_fd = -1;  // rank 0: the bound, listening socket, taken over; -1: rank 0 listens
                            // on master_port itself
    Duration time_limit = std::chrono::minutes(5);  // of each wait, here and in the links
};

struct LinkPlace {
    std::string name;
    int node = 0;  // of this rank on the link
    int node_count = 1;
};

class Rendezvous {
  public:
    // Rank 0 serves, the others connect. Throws Error{kHosts} naming address and port when the
    // store cannot be reached in time, Error{kSetup} when rank 0 cannot serve. May block up to the
    // time limit.
    Rendezvous(const Topology& topology, const RendezvousOptions& options);
    Rendezvous(const Rendezvous&) = delete;
    Rendezvous& operator=(const Rendezvous&) = delete;
    ~Rendezvous();

    void set(const std::string& key, const std::string& value);
    // Waits for the key. Throws Error{kHang} naming it after the time limit, Error{kPeerLost} when
    // rank 0 is gone.
    [[nodiscard]] std::string get(const std::string& key);

    // The link between this bridge and the same bridge of every other host; all of them call it.
    // Binds the interface that GLOO_SOCKET_IFNAME names, else the address from which this host
    // reaches the master. Throws Error{kSetup} when some hosts have loopback addresses and others
    // not, Error{kPeerLost} or {kHang} when they do not meet.
    [[nodiscard]] std::unique_ptr<Link> open_link();
    // A link between other ranks: all that say the same NAME, which is used once. After the above
    // by local rank 0 of each host, whose addresses it uses. Throws as it does.
    [[nodiscard]] std::unique_ptr<Link> open_link(const LinkPlace& place);

  private:
    [[nodiscard]] std::string choose_address() const;
    [[nodiscard]] std::string agree_on_addresses();
    [[nodiscard]] std::unique_ptr<Link> connect(const LinkPlace& place, const std::string& address);

    struct Store;
    Topology topology_;
    RendezvousOptions options_;
    std::unique_ptr<Store> store_;
};

}  // namespace dslaunch::runtime

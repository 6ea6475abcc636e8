// The endpoint at which a launcher listens for agents that call back: one TCP address and port, or
// a Unix socket in a folder that only its owner may enter. Text <-> sockets; no threads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

// An endpoint such as "10.0.0.1:29400", "[fd00::1]:29400", "node1:29400" or "unix:/path".
struct JoinEndpoint {
    std::string unix_path;  // path of a Unix socket; the other members are then unused
    std::string host;       // a name or an address, IPv6 without brackets
    int port = 0;           // 0: a free port, only for listening

    // Returns the text that parse_join_endpoint() reads.
    [[nodiscard]] std::string text() const;
    // Returns true for a Unix socket.
    [[nodiscard]] bool is_unix() const { return !unix_path.empty(); }
};

// Parses TEXT. Throws Error{kUsage} that describes the expected form. Refuses port 0.
[[nodiscard]] JoinEndpoint parse_join_endpoint(std::string_view text);

// A listening socket, and the paths that must be removed with it. Close-on-exec and non-blocking.
class JoinListener {
  public:
    // Throws Error{kSetup} if the address is not this machine's or if the port is taken (the
    // message names the process if it is visible). Name look-ups may block.
    explicit JoinListener(const JoinEndpoint& endpoint);
    // Opens a Unix socket in a new folder of mode 0700 below $XDG_RUNTIME_DIR or /tmp.
    [[nodiscard]] static JoinListener in_private_folder();
    JoinListener(JoinListener&&) = default;
    JoinListener& operator=(JoinListener&&) = delete;
    ~JoinListener();

    // Returns the listening socket; -1 after close().
    [[nodiscard]] int fd() const { return socket_.get(); }
    // Returns the endpoint as it was bound, including the port that was chosen.
    [[nodiscard]] const JoinEndpoint& endpoint() const { return endpoint_; }
    // Closes the socket: nobody can connect any more.
    void close();

  private:
    JoinListener() = default;
    void bind_unix();
    void bind_tcp();

    UniqueFd socket_;
    JoinEndpoint endpoint_;
    std::string folder_;  // removed with the socket; empty: none
};

// Returns the address at which HOSTS can reach this machine: the local end of the route to the
// first host that is another machine. No bytes are sent. If all HOSTS are this machine, returns the
// address that HOSTS give for it or, if they give none, a loopback address. Name look-ups may
// block.
[[nodiscard]] std::string address_facing(const std::vector<HostAddress>& hosts);

// Returns a description of a socket's peer: "10.0.0.2:41712", or "uid 1000, pid 4711" for a Unix
// socket.
[[nodiscard]] std::string peer_text(int fd);
// Returns true if the process at the other end of a Unix socket belongs to this user or root.
[[nodiscard]] bool is_own_peer(int fd);

}  // namespace dslaunch::launch

// The endpoint at which a launcher listens for agents that call back: one TCP address and port, or
// a Unix socket in a folder that only its owner enters. Text <-> sockets; no threads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

// "10.0.0.1:29400", "[fd00::1]:29400", "node1:29400" or "unix:/path".
struct JoinEndpoint {
    std::string unix_path;  // not empty: a Unix socket, the rest says nothing
    std::string host;       // a name or an address, IPv6 without brackets
    int port = 0;           // 0: a free one (to listen on; nobody connects to it)

    [[nodiscard]] std::string text() const;
    [[nodiscard]] bool is_unix() const { return !unix_path.empty(); }
};

// Parses TEXT. Throws Error{kUsage} that says what it should look like. Refuses port 0.
[[nodiscard]] JoinEndpoint parse_join_endpoint(std::string_view text);

// A listening socket, and what must be removed with it. Close-on-exec, does not block.
class JoinListener {
  public:
    // Throws Error{kSetup}: the address is not this machine's, or the port is taken (it says by
    // whom if that can be seen). Name look-ups may block.
    explicit JoinListener(const JoinEndpoint& endpoint);
    // Opens a Unix socket in a fresh folder of mode 0700 below $XDG_RUNTIME_DIR or /tmp.
    [[nodiscard]] static JoinListener in_private_folder();
    JoinListener(JoinListener&&) = default;
    JoinListener& operator=(JoinListener&&) = delete;
    ~JoinListener();

    [[nodiscard]] int fd() const { return socket_.get(); }
    // Returns the endpoint as it was bound, with the chosen port.
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

// Returns the address of this machine that faces HOSTS: the local end of a route to the first of
// them that is not this machine, without sending anything. Falls back to this machine's first
// address, and to loopback when it has no address. Name look-ups may block.
[[nodiscard]] std::string address_facing(const std::vector<HostAddress>& hosts);

// Returns a socket's peer: "10.0.0.2:41712", or "uid 1000, pid 4711" of a Unix socket.
[[nodiscard]] std::string peer_text(int fd);
// Returns true if the other end of a Unix socket is a process of this user, or root.
[[nodiscard]] bool is_own_peer(int fd);

}  // namespace dslaunch::launch

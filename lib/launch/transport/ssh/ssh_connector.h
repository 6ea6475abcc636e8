// The TCP connection of an ssh session: tries a host's addresses one after another. Never blocks.
#pragma once

#include <netdb.h>

#include <memory>
#include <optional>
#include <string>

#include "base/fd.h"

namespace dslaunch::launch {

// The attempt to connect to one host.
class SshConnector {
  public:
    // Forgets an earlier attempt and takes ADDRESSES. BIND_ADDRESS: the local address to connect
    // from; if it is empty, any local address is used.
    void begin(std::shared_ptr<addrinfo> addresses, std::string bind_address);
    // Begins to connect to the next address; false if no address is left.
    [[nodiscard]] bool try_next();
    // Returns true if another address is left to try.
    [[nodiscard]] bool has_next() const { return next_ != nullptr; }
    // Returns 0 if the current address is connected, or the errno of its failure. Returns nothing
    // while the address has not answered.
    [[nodiscard]] std::optional<int> result();
    // Sets the reason for the failure of the current address.
    void set_failure(std::string reason) { failure_ = std::move(reason); }
    // Returns the reason for the failure of the last address.
    [[nodiscard]] const std::string& failure() const { return failure_; }

    // Returns the socket while it is being connected, and -1 otherwise.
    [[nodiscard]] int fd() const { return socket_.get(); }
    // Returns the connected socket, once.
    [[nodiscard]] UniqueFd take_socket() { return std::move(socket_); }
    // Closes the socket.
    void drop() { socket_.reset(); }

  private:
    std::string bind_address_;
    std::shared_ptr<addrinfo> addresses_;  // see ResolvedHost
    const addrinfo* next_ = nullptr;
    UniqueFd socket_;
    std::string failure_;
};

}  // namespace dslaunch::launch

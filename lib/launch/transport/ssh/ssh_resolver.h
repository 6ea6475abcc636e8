// Looks up the names of hosts without blocking the transport's loop.
#pragma once

#include <netdb.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace dslaunch::launch {

// The answer to one question of SshResolver::ask().
struct ResolvedHost {
    size_t host = 0;
    std::shared_ptr<addrinfo> addresses;  // shared only because the list's deleter is not a plain
                                          // delete
    std::string error;                    // why the lookup failed, in words; else empty
};

// Looks up host names in its own threads, so that a slow name server delays no session. A lookup
// cannot be cancelled: its thread ends by itself and owns everything that it uses.
class SshResolver {
  public:
    SshResolver();
    // Starts a lookup of NAME; the answer contains HOST. FAMILY: AF_UNSPEC, AF_INET or AF_INET6. At
    // most 32 lookups run at a time; the others wait.
    void ask(size_t host, const std::string& name, int port, int family);
    // Returns a descriptor that is readable while answers wait.
    [[nodiscard]] int fd() const;
    // Returns the answers that have arrived since the last call.
    [[nodiscard]] std::vector<ResolvedHost> take();

  private:
    struct State;
    std::shared_ptr<State> state_;  // shared with the threads, which may outlive this object
};

}  // namespace dslaunch::launch

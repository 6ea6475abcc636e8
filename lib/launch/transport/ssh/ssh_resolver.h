// Host names looked up in threads of their own, so that a slow name server holds no session.
// Lookups cannot be cancelled: the threads are left to end by themselves and own what they touch.
#pragma once

#include <netdb.h>

#include <memory>
#include <string>
#include <vector>

namespace dslaunch::launch {

struct Resolved {
    size_t host = 0;
    std::shared_ptr<addrinfo> addresses;  // shared only because the list's deleter is not a plain
                                          // delete
    std::string error;                    // not empty: in words
};

class SshResolver {
  public:
    SshResolver();
    // Asks for NAME; the answer carries HOST. FAMILY: AF_UNSPEC, AF_INET or AF_INET6. At most 32
    // lookups run at a time, the others wait.
    void ask(size_t host, const std::string& name, int port, int family);
    // Readable when answers wait.
    [[nodiscard]] int fd() const;
    [[nodiscard]] std::vector<Resolved> take();

  private:
    struct State;
    std::shared_ptr<State> state_;  // shared with the threads, which may outlive this object
};

}  // namespace dslaunch::launch

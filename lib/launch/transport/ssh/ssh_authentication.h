// Proves who we are to one ssh server with keys, certificates and the ssh-agent. Asks the user
// nothing and writes no file (libssh's own way writes missing .pub files).
#pragma once

#include <libssh/libssh.h>

#include <memory>
#include <string>
#include <vector>

#include "launch/transport/ssh/ssh_target.h"

namespace dslaunch::launch {

class SshAuthentication {
  public:
    // SESSION and TARGET must outlive this object.
    SshAuthentication(ssh_session session, const SshTarget& target);

    enum class Result { kAgain, kAccepted, kRefused };
    // Goes on as far as the server has answered. The ssh-agent is spoken to without waiting for
    // the server, but with waiting for the agent.
    [[nodiscard]] Result step();
    // After kRefused: what the server takes, what stands in the way of our keys, what to do.
    [[nodiscard]] std::string cause() const;

  private:
    struct Free {
        void operator()(ssh_key key) const { ssh_key_free(key); }
    };
    using Key = std::unique_ptr<ssh_key_struct, Free>;
    struct Candidate {
        std::string key_file;          // empty: whatever the ssh-agent has
        std::string certificate_file;  // empty: the key alone
    };

    [[nodiscard]] bool load();  // false: the candidate is of no use
    [[nodiscard]] Key read_private(const std::string& file);
    [[nodiscard]] int ask();
    void next();

    ssh_session session_;
    const SshTarget& target_;
    std::vector<Candidate> candidates_;
    size_t at_ = 0;
    Key offered_;  // the public half, or the certificate
    Key private_;  // null until the server takes the offered one, unless it had to be read
    bool taken_ = false;
    bool loaded_ = false;
    bool partial_ = false;
    std::string error_;
    std::string locked_file_;    // needs a passphrase
    std::string hardware_file_;  // on a FIDO device
    bool agent_refused_ = false;
};

}  // namespace dslaunch::launch

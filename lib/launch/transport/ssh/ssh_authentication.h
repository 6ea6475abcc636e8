// Proves our identity to an ssh server with keys, certificates and the ssh-agent. Asks the user
// nothing and writes no file (libssh's own functions write missing .pub files).
#pragma once

#include <libssh/libssh.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "launch/transport/ssh/ssh_target.h"

namespace dslaunch::launch {

// One authentication, as a state machine.
class SshAuthentication {
  public:
    // SESSION and TARGET must outlive this object.
    SshAuthentication(ssh_session session, const SshTarget& target);

    // The state of the authentication: kAgain, the server has not answered yet; kAccepted, it
    // accepts our identity; kRefused, it does not accept our identity.
    enum class Result { kAgain, kAccepted, kRefused };
    // Continues as far as the server has answered. It never waits for the server, but it does wait
    // for the ssh-agent.
    [[nodiscard]] Result step();
    // Returns, after kRefused, the methods that the server accepts, the reason why our keys cannot
    // be used, and advice.
    [[nodiscard]] std::string cause() const;

  private:
    struct Free {
        void operator()(ssh_key key) const { ssh_key_free(key); }
    };
    using Key = std::unique_ptr<ssh_key_struct, Free>;
    struct Candidate {
        std::string key_file;          // empty: the keys of the ssh-agent
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
    Key private_;  // the private half; null until the server takes the offered half, unless reading
                   // both was necessary
    bool is_taken_ = false;
    bool is_loaded_ = false;
    bool is_partial_ = false;
    std::string error_;
    std::string locked_file_;    // needs a passphrase
    std::string hardware_file_;  // on a FIDO device
    bool has_agent_refused_ = false;
};

}  // namespace dslaunch::launch

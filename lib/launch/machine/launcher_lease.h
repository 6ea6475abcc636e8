// An agent or a relay believes in a launcher that says nothing for kLeaseMax, so that one that was
// stopped (Ctrl-Z, SIGSTOP, a debugger) keeps its job; on the launcher's own machine without end.
// Only kSilenceMax when the launcher's machine or the network to it is gone: then the kernel knows
// of bytes that nobody has acknowledged (connection_signs.h). A launcher that has ended closes its
// connection, which is no matter of this file. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace dslaunch::launch {

class LauncherLease {
  public:
    // The launcher, or the relay that asks it, is on this machine: its end closes the pipe.
    [[nodiscard]] static LauncherLease same_machine();
    // The launcher is at the other end of FD, a socket that outlives this object.
    [[nodiscard]] static LauncherLease over_socket(int fd);
    // sshd has started this process.
    [[nodiscard]] static LauncherLease over_ssh(std::string ssh_connection);

    // The launcher is at the other end of stdin: on this machine, or behind sshd.
    [[nodiscard]] static LauncherLease over_stdio(bool same_machine);

    // SILENCE: the time without a byte from the launcher, during which this side has spoken every
    // few seconds. Returns why it is to be believed gone; empty: it is not.
    [[nodiscard]] std::string over(std::chrono::milliseconds silence) const;

  private:
    enum class Way : uint8_t { kSameMachine, kSocket, kSsh };
    LauncherLease(Way way, int fd, std::string ssh_connection)
        : way_(way), fd_(fd), ssh_connection_(std::move(ssh_connection)) {}

    Way way_;
    int fd_;
    std::string ssh_connection_;
};

}  // namespace dslaunch::launch

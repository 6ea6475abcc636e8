// The transport over libssh: all sessions of a job in one loop over one poll().
#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "launch/transport/ssh/ssh_session.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class SshTransport final : public Transport {
  public:
    explicit SshTransport(const std::string& config_path)
        : config_path_(config_path), launcher_path_(launcher_path()) {}

    void start(const std::vector<HostAddress>& hosts) override {
        for (const HostAddress& host : hosts) static_cast<void>(add(host));
    }
    size_t add(const HostAddress& host) override {
        const size_t index = sessions_.size();
        sessions_.push_back(std::make_unique<SshSession>(
            index, host, config_path_,
            SshPurpose{remote_command(launcher_path_, host), {}, 0, {}, 0}));
        sessions_.back()->begin(resolver_);
        touched_.push_back(true);
        return index;
    }
    void hold(size_t host, bool held) override {
        sessions_[host]->hold(held);
        touched_[host] = true;
    }
    void send(size_t host, std::string_view bytes) override {
        if (sessions_[host]->ended()) return;
        sessions_[host]->send(bytes);
        touched_[host] = true;
    }
    void close_input(size_t host) override {
        sessions_[host]->close_input();
        touched_[host] = true;
    }
    void abandon(size_t host) override { sessions_[host]->abandon(); }

    std::vector<TransportEvent> wait(milliseconds timeout, int wake_fd) override {
        std::vector<TransportEvent> events;
        // Queued bytes are sent before the wait, so that an answer can arrive during the wait.
        advance_touched(events);
        if (!events.empty()) timeout = milliseconds(0);
        std::vector<pollfd> entries = {{wake_fd, POLLIN, 0}, {resolver_.fd(), POLLIN, 0}};
        std::vector<size_t> first_entry;  // by session; the last element is the number of entries
        for (const auto& session : sessions_) {
            first_entry.push_back(entries.size());
            session->add_polls(entries);
        }
        first_entry.push_back(entries.size());
        if (::poll(entries.data(), entries.size(), poll_timeout(timeout)) < 0) {
            if (errno == EINTR) return events;
            fail(ExitCode::kInternal, "poll failed: {}", errno_text(errno));
        }
        if (entries[1].revents != 0) {
            for (const ResolvedHost& resolved : resolver_.take()) {
                sessions_[resolved.host]->take_addresses(resolved);
                touched_[resolved.host] = true;
            }
        }
        for (size_t i = 0; i < sessions_.size(); ++i) {
            for (size_t e = first_entry[i]; e < first_entry[i + 1]; ++e) {
                if (entries[e].revents != 0) touched_[i] = true;
            }
            if (is_due(*sessions_[i])) touched_[i] = true;
        }
        advance_touched(events);
        return events;
    }

  private:
    static bool is_due(const SshSession& session) {
        const auto deadline = session.deadline();
        return deadline && *deadline <= steady_clock::now();
    }

    void advance_touched(std::vector<TransportEvent>& events) {
        for (size_t i = 0; i < sessions_.size(); ++i) {
            if (!touched_[i]) continue;
            touched_[i] = false;
            if (sessions_[i]->waits_for_retry() && is_due(*sessions_[i])) {
                sessions_[i]->begin(resolver_);
            }
            sessions_[i]->advance(events);
        }
    }

    int poll_timeout(milliseconds timeout) const {
        for (const auto& session : sessions_) {
            if (const auto deadline = session->deadline()) {
                timeout = std::min(timeout, std::chrono::duration_cast<milliseconds>(
                                                *deadline - steady_clock::now()) +
                                                milliseconds(1));
            }
        }
        return static_cast<int>(std::max(timeout, milliseconds(0)).count());
    }

    std::string config_path_;
    std::string launcher_path_;
    SshResolver resolver_;
    std::vector<std::unique_ptr<SshSession>> sessions_;
    std::vector<bool> touched_;
};

}  // namespace

std::unique_ptr<Transport> make_ssh_transport(const std::string& ssh_config_path) {
    return std::make_unique<SshTransport>(ssh_config_path);
}

}  // namespace dslaunch::launch

// A Transport whose agents are functions of a test. The launcher's bytes reach the agents as
// frames, and the agents' answers return in pieces of a chosen size. There are no processes and no
// descriptors, and a wait without events takes only a millisecond.
#pragma once

#include <sys/signalfd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "launch/protocol/frame.h"
#include "launch/protocol/messages.h"
#include "launch/transport/transport.h"

namespace dslaunch::test {

using namespace launch;

// Returns a descriptor like that from which a launcher reads its signals, but none arrives.
inline UniqueFd no_signals() {
    sigset_t none;
    sigemptyset(&none);
    return UniqueFd(::signalfd(-1, &none, SFD_CLOEXEC | SFD_NONBLOCK));
}

class FakeTransport final : public Transport {
  public:
    // Called for each frame that HOST receives. It answers through say() and end().
    using Agent = std::function<void(FakeTransport&, size_t host, const Frame& frame)>;

    explicit FakeTransport(Agent agent, size_t piece_bytes = 1U << 20)
        : agent_(std::move(agent)), piece_bytes_(piece_bytes) {}

    void say(size_t host, FrameKind kind, std::string payload = {}) {
        say_bytes(host, encode(Frame{kind, std::move(payload)}));
    }
    void say_bytes(size_t host, std::string bytes) {
        for (size_t at = 0; at < bytes.size(); at += piece_bytes_) {
            events_.push_back(
                {TransportEvent::Kind::kBytes, host, bytes.substr(at, piece_bytes_), -1});
        }
    }
    void complain(size_t host, std::string line) {
        events_.push_back({TransportEvent::Kind::kDiagnostic, host, std::move(line), -1});
    }
    void end(size_t host, std::string cause, int exit_status) {
        events_.push_back({TransportEvent::Kind::kEnded, host, std::move(cause), exit_status});
    }

    void start(const std::vector<HostAddress>& hosts) override {
        for (const HostAddress& host : hosts) names.push_back(host.name);
        for (size_t i = 0; i < hosts.size(); ++i) say_bytes(i, std::string(kAgentGreeting));
    }
    void send(size_t host, std::string_view bytes) override {
        FrameDecoder& decoder = decoders_.try_emplace(host, false).first->second;
        decoder.append(bytes);
        while (const auto frame = decoder.next()) {
            sent.emplace_back(host, frame->kind);
            agent_(*this, host, *frame);
        }
    }
    void close_input(size_t) override {}
    void abandon(size_t host) override { abandoned.push_back(host); }
    std::vector<TransportEvent> wait(std::chrono::milliseconds, int) override {
        // All events that have arrived are reported at once, as by real transports, so words that
        // arrive before a time limit are heard before it.
        if (events_.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return std::exchange(events_, {});
    }

    [[nodiscard]] bool was_sent(FrameKind kind) const {
        return std::any_of(sent.begin(), sent.end(),
                           [&](const auto& entry) { return entry.second == kind; });
    }

    std::vector<std::string> names;
    std::vector<std::pair<size_t, FrameKind>> sent;  // the host that got each frame, and the
                                                     // frame's kind
    std::vector<size_t> abandoned;

  private:
    Agent agent_;
    size_t piece_bytes_;
    std::vector<TransportEvent> events_;
    std::map<size_t, FrameDecoder> decoders_;
};

}  // namespace dslaunch::test

// A job on hosts with two ranks each, run by a Supervisor. The agents are functions of the test.
#pragma once

#include <csignal>
#include <optional>
#include <utility>

#include "base/error.h"
#include "launch/files/file_facts.h"
#include "launch/protocol/control.h"
#include "launch/supervise/supervisor.h"
#include "support/catch.h"
#include "support/fake_transport.h"
#include "support/job_process.h"
#include "support/piped_stream.h"
#include "support/text_tools.h"

namespace dslaunch::test {

using namespace launch;

// Returns a job on NODES hosts n0, n1, … with RANKS_EACH ranks each.
inline JobSpec job_on(size_t nodes, int ranks_each, TargetKind kind = TargetKind::kProgram) {
    JobSpec spec;
    spec.target_kind = kind;
    spec.transport = TransportKind::kSsh;
    spec.world_size = static_cast<int>(nodes) * ranks_each;
    spec.log.quiet = true;
    for (size_t i = 0; i < nodes; ++i) {
        PlannedNode node;
        node.name = "n" + std::to_string(i);
        for (int local = 0; local < ranks_each; ++local) {
            PlannedWorker worker;
            worker.environment.rank = static_cast<int>(i) * ranks_each + local;
            worker.environment.world_size = spec.world_size;
            worker.command = {"program"};
            node.workers.push_back(worker);
        }
        spec.nodes.push_back(node);
    }
    return spec;
}

inline JobSpec two_per_node(size_t nodes, TargetKind kind = TargetKind::kProgram) {
    return job_on(nodes, 2, kind);
}

inline AgentHello good_hello() {
    AgentHello hello;
    hello.version = "0";
    hello.binary_hash = own_binary_hash();
    hello.cores = 4;
    return hello;
}

inline WorkerExited exited(int64_t rank, int64_t status, int64_t signal_number = 0) {
    WorkerExited message;
    message.rank = rank;
    message.pid = 100 + rank;
    message.exit_status = status;
    message.signal_number = signal_number;
    return message;
}

// Returns an agent that answers every request correctly. After its ranks have started, it calls
// AFTER_START.
inline FakeTransport::Agent good_agent(std::function<void(FakeTransport&, size_t)> after_start) {
    return [after_start](FakeTransport& transport, size_t host, const Frame& frame) {
        switch (frame.kind) {
            case FrameKind::kHello:
                return transport.say(host, FrameKind::kAgentHello, encode(good_hello()));
            case FrameKind::kPrepare:
                return transport.say(host, FrameKind::kPrepared,
                                     encode(PrepareReply{"10.0.0.1", 4711}));
            case FrameKind::kStart:
                for (const auto& worker : decode<StartRequest>(frame.payload).workers) {
                    WorkerStarted started;
                    started.rank = worker.place.rank;
                    started.pid = 100 + worker.place.rank;
                    transport.say(host, FrameKind::kStarted, encode(started));
                }
                return after_start(transport, host);
            case FrameKind::kStopJob:
                return transport.say(host, FrameKind::kJobStopped, encode(StopJobReply{}));
            case FrameKind::kPing:
                return transport.say(host, FrameKind::kPong);
            case FrameKind::kStop:
                return transport.say(host, FrameKind::kGone);
            default:
                return;
        }
    };
}

inline void all_end_well(FakeTransport& transport, size_t host) {
    for (const int64_t local : {0, 1}) {
        transport.say(host, FrameKind::kExited,
                      encode(exited(static_cast<int64_t>(2 * host) + local, 0)));
    }
}

// A transport on top of another one. then() sets an action, which runs in the first wait() that has
// no events. So it runs after all that the agents have said.
class WhenQuiet final : public Transport {
  public:
    explicit WhenQuiet(FakeTransport& agents) : agents_(agents) {}

    void then(std::function<void()> deed) { deed_ = std::move(deed); }

    void start(const std::vector<HostAddress>& hosts) override { agents_.start(hosts); }
    void send(size_t host, std::string_view bytes) override { agents_.send(host, bytes); }
    void close_input(size_t host) override { agents_.close_input(host); }
    void abandon(size_t host) override { agents_.abandon(host); }
    std::vector<TransportEvent> wait(std::chrono::milliseconds timeout, int wake_fd) override {
        std::vector<TransportEvent> events = agents_.wait(timeout, wake_fd);
        if (!events.empty() || !deed_) return events;
        std::exchange(deed_, nullptr)();
        return agents_.wait(timeout, wake_fd);
    }

  private:
    FakeTransport& agents_;
    std::function<void()> deed_;
};

inline AttemptResult run(const JobSpec& spec, Transport& transport,
                         const AttemptNumber& number = {},
                         const std::vector<CutOffHost>& cut_off = {}) {
    const UniqueFd signals = no_signals();
    StandardStreams streams;
    JobFiles files(spec);
    JobOutput output(spec, streams, files);
    return Supervisor(spec, transport, output, signals.get()).run(number, cut_off);
}

inline std::string refusal(const JobSpec& spec, FakeTransport& transport, ExitCode code,
                           const AttemptNumber& number = {}) {
    return error_of(code, [&] { (void)run(spec, transport, number); });
}

}  // namespace dslaunch::test

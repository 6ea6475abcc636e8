#include "launch/fleet/host_question.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "launch/process/timing.h"
#include "launch/protocol/messages.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

struct Asked {
    FrameDecoder frames{true};
    HostAnswer answer;
    std::string last_diagnostic;
    bool ended = false;
};

class Round {
  public:
    Round(Transport& transport, const std::vector<HostAddress>& hosts, const Frame& question,
          FrameKind answer)
        : transport_(transport), question_(question), answer_(answer), asked_(hosts.size()) {
        for (size_t i = 0; i < hosts.size(); ++i) asked_[i].answer.host = hosts[i].name;
        transport_.start(hosts);
        for (size_t i = 0; i < hosts.size(); ++i) {
            Hello hello;
            hello.node_name = hosts[i].name;
            transport_.send(i, encode(Frame{FrameKind::kHello, encode(hello)}));
        }
    }

    // Waits until all hosts have ended, or until LIMIT.
    void wait(steady_clock::time_point limit) {
        while (!std::all_of(asked_.begin(), asked_.end(), [](const Asked& a) { return a.ended; })) {
            const auto left = std::chrono::ceil<milliseconds>(limit - steady_clock::now()).count();
            if (left <= 0) return;
            const auto slice = std::min<int64_t>(left, 500);
            for (const TransportEvent& event : transport_.wait(milliseconds(slice), -1)) {
                take(event);
            }
        }
    }

    std::vector<HostAnswer> finish(milliseconds limit) {
        std::vector<HostAnswer> answers;
        for (size_t i = 0; i < asked_.size(); ++i) {
            if (!asked_[i].ended)
                give_up(i, fmt::format("no answer within {} s",
                                       std::chrono::duration<double>(limit).count()));
            answers.push_back(std::move(asked_[i].answer));
        }
        return answers;
    }

  private:
    void give_up(size_t host, const std::string& why) {
        Asked& asked = asked_[host];
        asked.ended = true;
        if (!asked.answer.payload && asked.answer.error.empty()) asked.answer.error = why;
        transport_.abandon(host);
    }

    void take(const TransportEvent& event) {
        Asked& asked = asked_[event.host];
        if (asked.ended) return;
        if (event.kind == TransportEvent::Kind::kDiagnostic) {
            asked.last_diagnostic = printable(event.text);
            return;
        }
        if (event.kind == TransportEvent::Kind::kEnded) {
            std::string why = printable(event.text);
            if (why.empty()) why = fmt::format("its agent ended with {}", event.exit_status);
            if (!asked.last_diagnostic.empty()) why += ": " + asked.last_diagnostic;
            return give_up(event.host, why);
        }
        try {
            asked.frames.append(event.text);
            while (const auto frame = asked.frames.next()) take_frame(event.host, *frame);
        } catch (const Error& error) {
            give_up(event.host, fmt::format("its agent speaks nonsense: {}", error.what()));
        }
    }

    void take_frame(size_t host, const Frame& frame) {
        Asked& asked = asked_[host];
        if (frame.kind == FrameKind::kAgentHello) {
            const auto hello = decode<AgentHello>(frame.payload);
            if (hello.protocol_version != kAgentProtocolVersion) {
                return give_up(host, fmt::format("its dslaunch {} speaks protocol {}, this one {}",
                                                 printable(hello.version), hello.protocol_version,
                                                 kAgentProtocolVersion));
            }
            transport_.send(host, encode(question_));
        } else if (frame.kind == answer_) {
            asked.answer.payload = frame.payload;
            transport_.send(host, encode(Frame{FrameKind::kStop, {}}));
            transport_.close_input(host);
        } else if (frame.kind == FrameKind::kProblem) {
            asked.answer.error = printable(decode<AgentProblem>(frame.payload).message);
        } else if (frame.kind == FrameKind::kGone) {
            asked.ended = true;
        }
    }

    Transport& transport_;
    const Frame& question_;
    FrameKind answer_;
    std::vector<Asked> asked_;
};

}  // namespace

std::vector<HostAnswer> ask_hosts(Transport& transport, const std::vector<HostAddress>& hosts,
                                  const Frame& question, FrameKind answer, milliseconds limit) {
    Round round(transport, hosts, question, answer);
    round.wait(steady_clock::now() + limit);
    return round.finish(limit);
}

}  // namespace dslaunch::launch

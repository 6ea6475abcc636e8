#include "launch/fleet/host_question.h"

#include <fmt/format.h>

#include <utility>

namespace dslaunch::launch {
namespace {

class Question : public FleetListener {
  public:
    Question(const std::vector<HostAddress>& hosts, Transport& transport, int signal_fd,
             const HostQuestion& question)
        : fleet_(hosts, transport, signal_fd), question_(question), answers_(hosts.size()) {
        fleet_.listen(this);
    }

    std::vector<HostAnswer> ask() {
        fleet_.connect(question_.connect_max, false);
        const auto answered = [&] {
            for (size_t i = 0; i < answers_.size(); ++i) {
                if (!answers_[i].payload && !fleet_.nodes()[i].ended) return false;
            }
            return true;
        };
        const bool all =
            fleet_.pump(answered, std::chrono::steady_clock::now() + question_.answer_max);
        for (size_t i = 0; i < answers_.size() && !all; ++i) {
            if (!answers_[i].payload)
                fleet_.blame(
                    i, fmt::format("no answer within {} s", question_.answer_max.count() / 1000));
        }
        fleet_.stop();
        for (size_t i = 0; i < answers_.size(); ++i) {
            answers_[i].host = fleet_.nodes()[i].address.name;
            if (!answers_[i].payload) answers_[i].error = fleet_.nodes()[i].error;
        }
        return std::move(answers_);
    }

    void host_greeted(size_t host) override {
        fleet_.send(host, question_.kind, question_.payload);
    }
    void take_frame(size_t host, const Frame& frame) override {
        if (frame.kind == question_.answer_kind) answers_[host].payload = frame.payload;
    }

  private:
    Fleet fleet_;
    const HostQuestion& question_;
    std::vector<HostAnswer> answers_;  // by host
};

}  // namespace

std::vector<HostAnswer> ask_hosts(const std::vector<HostAddress>& hosts, Transport& transport,
                                  int signal_fd, const HostQuestion& question) {
    return Question(hosts, transport, signal_fd, question).ask();
}

}  // namespace dslaunch::launch

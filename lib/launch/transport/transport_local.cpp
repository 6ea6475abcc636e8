#include <fmt/format.h>

#include "launch/process/worker_stdin.h"
#include "launch/transport/transport_process.h"

namespace dslaunch::launch {
namespace {

class LocalTransport final : public ProcessTransport {
  public:
    explicit LocalTransport(bool hands_stdin)
        : stdin_(hands_stdin ? stdin_for_worker() : UniqueFd()) {}

  protected:
    std::vector<std::string> command(const HostAddress& host) const override {
        const bool is_relay = host.program == RemoteProgram::kRelay;
        return {"/proc/self/exe", is_relay ? "relay" : "agent", "--stdio", "--same-machine"};
    }
    TransportEvent describe_end(size_t host, int status,
                                const std::deque<std::string>& lines) const override {
        TransportEvent event{TransportEvent::Kind::kEnded, host, {}, status};
        if (status != 0) {
            event.text = fmt::format("its agent ended with {}{}", status,
                                     lines.empty() ? "" : ": " + lines.back());
        }
        return event;
    }
    bool may_retry(int, const std::deque<std::string>&) const override { return false; }
    int worker_stdin(size_t index) const override { return index == 0 ? stdin_.get() : -1; }

  private:
    UniqueFd stdin_;
};

}  // namespace

std::unique_ptr<Transport> make_local_transport(bool hands_stdin) {
    return std::make_unique<LocalTransport>(hands_stdin);
}

}  // namespace dslaunch::launch

// The ssh program: small, knows every option of the user's configuration, and is the oracle for the
// libssh transport.
#include <fmt/format.h>

#include "base/text.h"
#include "launch/transport_process.h"

namespace dslaunch {
namespace {

constexpr int kSshFailed = 255;
constexpr int kNotFound = 127;

class OpenSshTransport final : public ProcessTransport {
  public:
    explicit OpenSshTransport(const std::string& ssh_config_path)
        : ssh_config_path_(ssh_config_path), launcher_path_(launcher_path()) {}

  protected:
    std::vector<std::string> command(const HostAddress& host) const override {
        std::vector<std::string> words = {"ssh", "-T"};
        if (!ssh_config_path_.empty()) words.insert(words.end(), {"-F", ssh_config_path_});
        for (const char* option :
             {"BatchMode=yes", "StrictHostKeyChecking=yes", "ConnectTimeout=10",
              "ServerAliveInterval=5", "ServerAliveCountMax=3", "ForwardAgent=no",
              "ClearAllForwardings=yes", "LogLevel=ERROR"}) {
            words.insert(words.end(), {"-o", option});
        }
        if (host.port != 0) words.insert(words.end(), {"-p", std::to_string(host.port)});
        if (!host.user.empty()) words.insert(words.end(), {"-l", host.user});
        if (!host.address.empty()) {
            // The key is looked up under the host's name, the connection goes to its address.
            words.insert(words.end(),
                         {"-o", "HostName=" + host.address, "-o", "HostKeyAlias=" + host.name});
        }
        words.insert(
            words.end(),
            {"--", host.name,
             host.command.empty() ? "exec " + launcher_path_ + " agent --stdio" : host.command});
        return words;
    }

    TransportEvent describe_end(size_t host, int status,
                                const std::deque<std::string>& lines) const override {
        TransportEvent event{TransportEvent::Kind::kEnded, host, {}, status};
        if (status == kSshFailed || status == kNotFound) {
            for (const std::string& line : lines) {
                const std::string_view text = trim(line);
                // The box of at-signs around a changed host key says nothing.
                if (text.empty() || text.front() == '@') continue;
                if (!event.text.empty()) event.text += ' ';
                event.text.append(printable(text));
            }
        }
        if (status == kSshFailed) {
            event.exit_status = -1;
            if (event.text.empty()) event.text = "the ssh connection failed";
        }
        return event;
    }

    bool may_retry(int status, const std::deque<std::string>& lines) const override {
        if (status != kSshFailed) return false;
        for (const std::string& line : lines) {
            if (line.find("kex_exchange_identification") != std::string::npos ||
                line.find("Connection reset by") != std::string::npos ||
                line.find("Connection closed by") != std::string::npos) {
                return true;
            }
        }
        return false;
    }

  private:
    std::string ssh_config_path_;
    std::string launcher_path_;
};

}  // namespace

std::unique_ptr<Transport> make_openssh_transport(const std::string& ssh_config_path) {
    return std::make_unique<OpenSshTransport>(ssh_config_path);
}

}  // namespace dslaunch

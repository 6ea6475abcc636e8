// The ssh program: small, knows every option of the user's configuration, and is the oracle for the
// libssh transport.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "launch/transport/ssh_config_file.h"
#include "launch/transport/transport_process.h"

namespace dslaunch::launch {
namespace {

constexpr int kSshFailed = 255;
constexpr int kNotFound = 127;

class OpenSshTransport final : public ProcessTransport {
  public:
    OpenSshTransport(const std::string& ssh_config_path, const std::vector<std::string>& arguments)
        : ssh_config_path_(ssh_config_path),
          arguments_(arguments),
          launcher_path_(launcher_path()) {}

  protected:
    std::vector<std::string> command(const HostAddress& host) const override {
        std::vector<std::string> words = {"ssh", "-T"};
        if (!ssh_config_path_.empty()) words.insert(words.end(), {"-F", ssh_config_path_});
        // The ssh program takes the first of several values.
        for (const char* option : {"BatchMode=yes", "StrictHostKeyChecking=yes"}) {
            words.insert(words.end(), {"-o", option});
        }
        words.insert(words.end(), arguments_.begin(), arguments_.end());
        for (const char* option :
             {"ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3",
              "ForwardAgent=no", "ClearAllForwardings=yes", "RemoteCommand=none", "RequestTTY=no",
              "LogLevel=ERROR"}) {
            words.insert(words.end(), {"-o", option});
        }
        if (host.port != 0) words.insert(words.end(), {"-p", std::to_string(host.port)});
        if (!host.user.empty()) words.insert(words.end(), {"-l", host.user});
        if (!host.address.empty()) {
            // The key is looked up under the host's name, the connection goes to its address.
            words.insert(words.end(),
                         {"-o", "HostName=" + host.address, "-o", "HostKeyAlias=" + host.name});
        }
        words.insert(words.end(), {"--", host.name, remote_command(launcher_path_, host)});
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

    // BatchMode does not reach the ssh of a ProxyJump or a ProxyCommand.
    bool leaves_terminal() const override { return true; }

    bool may_retry(int status, const std::deque<std::string>& lines) const override {
        if (status != kSshFailed) return false;
        // This holds only when nothing else was said: the ssh of a ProxyJump tells its own trouble
        // first.
        return !lines.empty() && std::all_of(lines.begin(), lines.end(), [](const auto& line) {
            return line.find("kex_exchange_identification") != std::string::npos ||
                   line.find("Connection reset by") != std::string::npos ||
                   line.find("Connection closed by") != std::string::npos;
        });
    }

  private:
    std::string ssh_config_path_;
    std::vector<std::string> arguments_;
    std::string launcher_path_;
};

}  // namespace

std::unique_ptr<Transport> make_openssh_transport(const std::string& ssh_config_path,
                                                  const std::vector<std::string>& arguments) {
    require_own_ssh_config(ssh_config_path);
    return std::make_unique<OpenSshTransport>(ssh_config_path, arguments);
}

}  // namespace dslaunch::launch

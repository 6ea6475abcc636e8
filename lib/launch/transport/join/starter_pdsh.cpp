// One pdsh starts the agents through ssh. pdsh gives a command no input and mixes its outputs, so
// the agents call back: over a Unix socket that ssh forwards, guarded by the user's id at both ends
// and by ssh between them. Nothing secret is in any argument: the socket's name is not.
#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/text.h"
#include "launch/process/spawn.h"
#include "launch/transport/join/transport_join.h"
#include "launch/transport/ssh_options_file.h"

namespace dslaunch::launch {
namespace {

constexpr const char* kAppendVariable = "PDSH_SSH_ARGS_APPEND";
constexpr std::string_view kUnixPrefix = "unix:";
constexpr std::string_view kExitMark = "ssh exited with exit code ";
constexpr size_t kFanOutMax = 1024;
// The folder of the socket on the other hosts, which every system has and everybody may write to.
constexpr std::string_view kSocketFolder = "/tmp";

std::string random_name() {
    unsigned char bytes[16] = {};
    if (::getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) {
        fail(ExitCode::kSetup, "no random bytes: {}", errno_text(errno));
    }
    std::string text = fmt::format("{}/dslaunch-", kSocketFolder);
    for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
    return text;
}

class PdshStarter final : public AgentStarter {
  public:
    explicit PdshStarter(const JobSpec& spec)
        : launcher_path_(launcher_path()),
          ssh_config_path_(spec.ssh_config_path),
          arguments_(spec.launcher_args),
          socket_there_(random_name()) {}

    std::string name() const override { return "pdsh"; }

    std::vector<std::string> command(const std::vector<HostAddress>& hosts,
                                     const std::string& endpoint) const override {
        options_ = std::make_unique<SshOptionsFile>(
            hosts, ssh_config_path_,
            SshOptionsFile::Forward{socket_there_, endpoint.substr(kUnixPrefix.size())});
        std::vector<std::string> names;
        for (const HostAddress& host : hosts) names.push_back(host.name);
        std::vector<std::string> words = {
            "pdsh", "-S", "-R", "ssh", "-f", std::to_string(std::min(names.size(), kFanOutMax))};
        words.insert(words.end(), arguments_.begin(), arguments_.end());
        // pdsh puts the host's name for %h and its place in the list for %n. Where there is no
        // dslaunch nobody else would remove the socket.
        words.insert(words.end(),
                     {"-w", join(names, ","),
                      fmt::format("[ -x {0} ] || rm -f {1}-%n; exec {0} agent --join unix:{1}-%n "
                                  "--remove-socket --node-name %h --connect-timeout 20",
                                  launcher_path_, socket_there_)});
        return words;
    }

    void prepare_environment(EnvironmentList& environment, const std::string&) const override {
        const std::string* own = find_variable(environment, kAppendVariable);
        const std::string before = own == nullptr || own->empty() ? "" : *own + " ";
        set_variable(environment, kAppendVariable, before + "-F " + options_->path());
        set_variable(environment, "SSH_ASKPASS_REQUIRE", "never");
    }

    StarterLine read_line(const std::string& line,
                          const std::vector<HostAddress>& hosts) const override {
        // "te1: what te1 says", or "pdsh@here: te1: what pdsh says of te1".
        std::string text = line;
        if (text.starts_with("pdsh@")) {
            const size_t end = text.find(": ");
            text.erase(0, end == std::string::npos ? text.size() : end + 2);
        }
        const size_t colon = text.find(": ");
        if (colon == std::string::npos) return {std::nullopt, text};
        return {find_host(text.substr(0, colon), hosts), text.substr(colon + 2)};
    }
    bool says_host_is_lost(const std::string& line) const override {
        return line.starts_with(kExitMark);
    }
    int exit_status_in(const std::string& line) const override {
        constexpr int kSshFailed = 255;
        if (!line.starts_with(kExitMark)) return -1;
        const auto status = parse_int(trim(std::string_view(line).substr(kExitMark.size())));
        return status && *status != kSshFailed ? static_cast<int>(*status) : -1;
    }
    std::string describe_end(int status, const std::deque<std::string>& lines) const override {
        constexpr int kNotStarted = 127;
        if (status == kNotStarted) {
            return "pdsh cannot be started here: install it (package pdsh), or leave --launcher "
                   "pdsh out: dslaunch brings its own ssh";
        }
        return AgentStarter::describe_end(status, lines);
    }

  private:
    // pdsh leaves a domain out that all hosts share.
    static std::optional<size_t> find_host(const std::string& label,
                                           const std::vector<HostAddress>& hosts) {
        std::optional<size_t> found;
        for (size_t i = 0; i < hosts.size(); ++i) {
            if (hosts[i].name == label) return i;
            if (!hosts[i].name.starts_with(label + ".")) continue;
            if (found) return std::nullopt;
            found = i;
        }
        return found;
    }

    std::string launcher_path_;
    std::string ssh_config_path_;
    std::vector<std::string> arguments_;
    std::string socket_there_;
    mutable std::unique_ptr<SshOptionsFile> options_;  // made when the endpoint is known
};

}  // namespace

std::unique_ptr<Transport> make_pdsh_transport(const JobSpec& spec) {
    const EnvironmentList environment = own_environment();
    const std::string* own = find_variable(environment, kAppendVariable);
    for (const std::string& word : split(own == nullptr ? "" : *own, ' ')) {
        if (!word.starts_with("-F")) continue;
        fail(ExitCode::kUsage,
             "{} has -F; name that file with --ssh-config (or DSLAUNCH_SSH_CONFIG) instead",
             kAppendVariable);
    }
    JoinSettings settings;  // a Unix socket in a private folder, without token
    settings.join_max = spec.connect_max;
    settings.starter = std::make_unique<PdshStarter>(spec);
    return make_join_transport(std::move(settings));
}

}  // namespace dslaunch::launch

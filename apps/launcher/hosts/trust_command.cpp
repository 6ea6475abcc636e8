// `dslaunch hosts trust`: sets up keys and known_hosts for all hosts, with one question and one
// password.
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <map>
#include <set>

#include "base/error.h"
#include "base/fd.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/text_table.h"
#include "launch/fleet/host_trust.h"
#include "launch/fleet/trust_files.h"
#include "launch/supervise/job.h"
#include "launcher/hosts/host_command.h"
#include "launcher/run/commands.h"

namespace dslaunch::launcher {
namespace {

constexpr size_t kFingerprintFileBytesMax = 1U << 20;
constexpr size_t kLineBytesMax = 4096;

// Hides typed input while it exists; the destructor restores the terminal's settings.
class HiddenInput {
  public:
    explicit HiddenInput(int tty) : tty_(tty) {
        if (::tcgetattr(tty_, &before_) != 0) return;
        termios hidden = before_;
        hidden.c_lflag &= ~static_cast<tcflag_t>(ECHO);
        changed_ = ::tcsetattr(tty_, TCSAFLUSH, &hidden) == 0;
    }
    HiddenInput(const HiddenInput&) = delete;
    HiddenInput& operator=(const HiddenInput&) = delete;
    ~HiddenInput() {
        if (changed_) ::tcsetattr(tty_, TCSAFLUSH, &before_);
    }
    [[nodiscard]] bool works() const { return changed_; }

  private:
    int tty_;
    termios before_{};
    bool changed_ = false;
};

// Asks the user at the terminal, even if stdin and stdout are redirected.
class Terminal {
  public:
    // Opens /dev/tty. SIGNAL_FD is a signalfd; its signals end a question. Throws Error{kUsage} if
    // there is no terminal; its message says WHAT cannot be asked, and contains ADVICE.
    Terminal(int signal_fd, const std::string& what, const std::string& advice);

    // Prints QUESTION and returns the line that was typed, without its newline. Throws
    // Error{kInterrupted} after a signal or at the end of the input.
    [[nodiscard]] std::string ask(const std::string& question);
    // Does the same as ask(), but hides the typed text. The terminal's settings are always
    // restored.
    [[nodiscard]] std::string ask_hidden(const std::string& question);

  private:
    UniqueFd tty_;
    int signal_fd_;
};

Terminal::Terminal(int signal_fd, const std::string& what, const std::string& advice)
    : tty_(::open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY)), signal_fd_(signal_fd) {
    if (!tty_.valid())
        fail(ExitCode::kUsage, "cannot ask {}, since there is no terminal: {}", what, advice);
}

std::string Terminal::ask(const std::string& question) {
    static_cast<void>(write_full(tty_.get(), question));
    std::string line;
    for (;;) {
        pollfd entries[2] = {{tty_.get(), POLLIN, 0}, {signal_fd_, POLLIN, 0}};
        if (::poll(entries, 2, -1) < 0 && errno != EINTR) break;
        if (entries[1].revents != 0) break;
        if (entries[0].revents == 0) continue;
        char c = 0;
        const ssize_t n = ::read(tty_.get(), &c, 1);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0 || line.size() > kLineBytesMax) break;
        if (c == '\n') return line;
        line += c;
    }
    static_cast<void>(write_full(tty_.get(), std::string_view("\n")));
    fail(ExitCode::kInterrupted, "interrupted; no further host is changed");
}

std::string Terminal::ask_hidden(const std::string& question) {
    const HiddenInput hidden(tty_.get());
    if (!hidden.works())
        fail(ExitCode::kSetup,
             "cannot ask for a password: the terminal does not support hidden input");
    std::string line = ask(question);
    static_cast<void>(write_full(tty_.get(), std::string_view("\n")));
    return line;
}

struct TrustOptions {
    bool yes = false;
    std::string fingerprints;
    std::set<std::string> replace;
};

class TrustCommand {
  public:
    TrustCommand(const HostTargets& targets, const TrustOptions& options, int signal_fd)
        : targets_(targets),
          options_(options),
          signal_fd_(signal_fd),
          trust_(targets.hosts, targets.spec.ssh_config_path),
          errors_(targets.hosts.size()) {}

    int run() {
        look_at_keys();
        accept_keys();
        std::vector<launch::KeyLogin> logins = trust_.try_keys(good());
        std::vector<bool> locked(errors_.size());
        for (size_t i = 0; i < logins.size(); ++i) locked[i] = good()[i] && !logins[i].worked;
        if (std::find(locked.begin(), locked.end(), true) != locked.end()) {
            install(locked, logins);
        }
        return report();
    }

  private:
    [[nodiscard]] std::vector<bool> good() const {
        std::vector<bool> which;
        for (const std::string& error : errors_) which.push_back(error.empty());
        return which;
    }
    [[nodiscard]] const std::string& name(size_t host) const { return targets_.hosts[host].name; }

    void look_at_keys() {
        keys_ = trust_.fetch_keys();
        for (size_t i = 0; i < keys_.size(); ++i) {
            launch::HostKey& key = keys_[i];
            if (key.state == launch::HostKeyState::kError) errors_[i] = key.error;
            if (key.state != launch::HostKeyState::kChanged || options_.replace.count(name(i)) != 0)
                continue;
            errors_[i] = fmt::format(
                "the key {} of this host is NOT the key in {}: the host was installed again, or "
                "somebody intercepts the connection; give --replace {} only if you know that the "
                "new key is right",
                key.fingerprint, printable(key.file), name(i));
        }
    }

    // Reads lines of the form "HOST SHA256:…".
    [[nodiscard]] std::map<std::string, std::string> read_fingerprints() const {
        std::map<std::string, std::string> expected;
        int number = 0;
        for (const std::string& line :
             split(read_file(options_.fingerprints, kFingerprintFileBytesMax), '\n')) {
            ++number;
            const std::string_view text = trim(line);
            if (text.empty() || text.front() == '#') continue;
            const size_t blank = text.find(' ');
            if (blank == std::string_view::npos || !trim(text.substr(blank)).starts_with("SHA256:"))
                fail(ExitCode::kUsage, "{}:{}: expected `HOST SHA256:…`", options_.fingerprints,
                     number);
            expected[std::string(text.substr(0, blank))] = trim(text.substr(blank));
        }
        return expected;
    }

    void accept_keys() {
        std::vector<size_t> open;
        std::vector<std::vector<std::string>> rows = {{"host", "key", "fingerprint", ""}};
        for (size_t i = 0; i < keys_.size(); ++i) {
            const launch::HostKey& key = keys_[i];
            if (!errors_[i].empty() || key.state == launch::HostKeyState::kKnown) continue;
            open.push_back(i);
            rows.push_back(
                {name(i), key.type, key.fingerprint,
                 key.state == launch::HostKeyState::kChanged ? "REPLACES ANOTHER" : "new"});
        }
        if (open.empty()) return;
        fmt::print("{}", text_table(rows));
        std::fflush(stdout);
        if (options_.yes) {
            compare(open);
        } else {
            Terminal terminal(signal_fd_, "whether the keys are right",
                              "give --yes with --fingerprints FILE");
            const std::string answer =
                terminal.ask(fmt::format("Are these the right keys of {}? Type yes to trust them: ",
                                         counted(std::ssize(open), "host")));
            if (answer != "yes")
                fail(ExitCode::kInterrupted, "the keys were not accepted; nothing was changed");
        }
        std::map<std::string, std::string> lines;  // the lines to add, by file
        for (const size_t i : open) {
            if (!errors_[i].empty()) continue;
            const launch::HostKey& key = keys_[i];
            if (key.file.empty() || key.file == "/dev/null") {
                errors_[i] = "the ssh configuration sets no known_hosts file for this host";
                continue;
            }
            if (key.state == launch::HostKeyState::kChanged)
                launch::forget_known_host(key.file, key.known_name);
            lines[key.file] += key.line;
        }
        for (const auto& [file, text] : lines) launch::add_known_hosts(file, text);
    }

    void compare(const std::vector<size_t>& open) {
        const auto expected = read_fingerprints();
        for (const size_t i : open) {
            const auto found = expected.find(name(i));
            if (found == expected.end()) {
                errors_[i] =
                    fmt::format("{} contains no fingerprint for this host", options_.fingerprints);
            } else if (found->second != keys_[i].fingerprint) {
                errors_[i] = fmt::format("its key is {}, but {} has {}", keys_[i].fingerprint,
                                         options_.fingerprints, printable(found->second));
            }
        }
    }

    void install(std::vector<bool>& locked, const std::vector<launch::KeyLogin>& logins) {
        size_t count = 0;
        const launch::KeyLogin* first = nullptr;
        for (size_t i = 0; i < locked.size(); ++i) {
            if (!locked[i]) continue;
            ++count;
            if (first == nullptr) first = &logins[i];
            fmt::print("{}: {}\n", name(i), logins[i].error);
        }
        std::fflush(stdout);
        std::string made;
        const std::string key = launch::find_or_make_public_key(first->identity, made);
        if (!made.empty()) fmt::print("made a new key: {}\n", made);
        Terminal terminal(signal_fd_, "for the password of these hosts",
                          "run this command in a terminal");
        std::string password = terminal.ask_hidden(
            fmt::format("Password of {} on {}: ", printable(first->user), counted(count, "host")));
        const std::vector<std::string> failed = trust_.install_key(locked, password, key);
        ::explicit_bzero(password.data(), password.size());
        for (size_t i = 0; i < locked.size(); ++i) {
            if (!locked[i]) continue;
            errors_[i] = failed[i];
            locked[i] = failed[i].empty();
        }
        const std::vector<launch::KeyLogin> again = trust_.try_keys(locked);
        for (size_t i = 0; i < locked.size(); ++i) {
            if (!locked[i] || again[i].worked) continue;
            errors_[i] = fmt::format(
                "the key is now in ~/.ssh/authorized_keys, but sshd on this host does not accept "
                "it ({}): check whether sshd uses another AuthorizedKeysFile, or whether other "
                "users may write to that file or folder",
                again[i].error);
        }
    }

    int report() const {
        launch::release_end_signals();  // from here on Ctrl-C ends this program at once
        std::string bad;
        size_t count = 0;
        for (size_t i = 0; i < errors_.size(); ++i) {
            if (errors_[i].empty()) continue;
            ++count;
            bad += fmt::format("\n  {}: {}", name(i), errors_[i]);
        }
        fmt::print("{} of {} can be reached without a password\n", errors_.size() - count,
                   counted(std::ssize(errors_), "host"));
        std::fflush(stdout);
        if (count == 0) return 0;
        print_message(fmt::format("dslaunch: not trusted: {} of {}:{}", count,
                                  counted(std::ssize(errors_), "host"), bad));
        return static_cast<int>(ExitCode::kHosts);
    }

    const HostTargets& targets_;
    const TrustOptions& options_;
    int signal_fd_;
    launch::HostTrust trust_;
    std::vector<launch::HostKey> keys_;
    std::vector<std::string> errors_;  // by host; empty: no error so far
};

}  // namespace

HelpPage trust_page() {
    return {
        .does =
            "Makes every host reachable without a password. Shows the keys of hosts that are not "
            "in known_hosts and asks once whether they are right. If hosts accept none of your "
            "keys, asks once for the password and puts your public key there (a new ed25519 key if "
            "you have none). Then logs in on every host without a password. A changed key is never "
            "replaced without asking. Steps that are already done are not repeated.",
        .examples = {"dslaunch hosts trust --hostfile hostfile",
                     "dslaunch hosts trust -H hostfile --yes --fingerprints keys.txt"},
        .exit_codes = "67 when a host cannot be reached without a password.",
        .docs = "docs/guide/hosts.md",
        .usage = {"dslaunch hosts trust --hostfile FILE [options]"}};
}

int trust_command(std::span<const std::string> arguments) {
    TrustOptions options;
    const HostCommand syntax{
        trust_page(),
        {{"yes", "", "do not ask for confirmation; needs --fingerprints",
          [&](const std::string&) { options.yes = true; }},
         {"fingerprints", "FILE",
          "with --yes: file with the keys to trust, one `HOST SHA256:…` per line",
          [&](const std::string& value) { options.fingerprints = value; }},
         {"replace", "HOST", "replace this host's old key by its new one; repeatable",
          [&](const std::string& value) { options.replace.insert(value); }, true}}};
    const ParsedCommand parsed = parse_host_command(arguments, syntax);
    if (parsed.help) return 0;
    if (!parsed.words.empty()) {
        fail(ExitCode::kUsage, "unexpected `{}`; name the hosts with --hostfile",
             printable(parsed.words.front()));
    }
    if (options.yes == options.fingerprints.empty()) {
        fail(ExitCode::kUsage, "--yes and --fingerprints FILE must be given together");
    }
    const UniqueFd signals = launch::open_end_signals();
    ::signal(SIGPIPE, SIG_IGN);
    const HostTargets targets = find_hosts(parsed.hosts);
    if (targets.spec.transport == launch::TransportKind::kLocal) {
        fail(ExitCode::kUsage, "every host is this machine; name other hosts with --hostfile");
    }
    return TrustCommand(targets, options, signals.get()).run();
}

}  // namespace dslaunch::launcher

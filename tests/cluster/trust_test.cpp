// Runs `dslaunch hosts trust` as a user types it, with and without a terminal, against hosts that
// accept only a password.
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/rig_hosts.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::test;

namespace {

const std::string kPassword = "open sesame";
const std::string kPasswordHash =
    "$6$dslaunchtest$"
    "GKJ0LGm4bw4ucXScD9eZ0Xb1dTCn8vTmWNvEmSXINz1EPZtfuPHN6WppxGBfPlcgF3vztterMS18ctEsKA0jj0";

// The hosts n1 and n2. Their user root has kPassword, no keys, and a home of its own.
class LockedHosts {
  public:
    LockedHosts() {
        write_file(file("shadow"), "root:" + kPasswordHash + ":19000:0:99999:7:::\n");
        const char* home = std::getenv("HOME");
        rig_.emplace(RigOptions{.what = "hosts trust on hosts made of network namespaces",
                                .private_folder = home == nullptr ? "/root" : home,
                                .passwords = file("shadow")});
        write_file(file("config"), "Host *\n  User root\n  IdentityFile " + file("key") +
                                       "\n  IdentitiesOnly yes\n  UserKnownHostsFile " +
                                       file("known_hosts") +
                                       "\n  GlobalKnownHostsFile /dev/null\n");
        write_file(file("hostfile"), "n[1-2] slots=1\n");
    }
    [[nodiscard]] bool usable() const { return rig_->usable(); }
    [[nodiscard]] std::string file(const std::string& name) const {
        return mine_.path() + "/" + name;
    }
    [[nodiscard]] std::string read(const std::string& name) const { return mine_.read(name); }
    [[nodiscard]] std::string authorized_keys(int host) const {
        return content_of(rig_->inside(host) + "/.ssh/authorized_keys");
    }
    [[nodiscard]] std::string rig_file(const std::string& name) const { return rig_->config(name); }
    [[nodiscard]] std::vector<std::string> command(const std::vector<std::string>& options) const {
        std::vector<std::string> words = {kDslaunch,     "hosts",          "trust",
                                          "--hostfile",  file("hostfile"), "--ssh-config",
                                          file("config")};
        words.insert(words.end(), options.begin(), options.end());
        return rig_->on(0, words);
    }

  private:
    TemporaryFolder mine_;
    std::optional<RigHosts> rig_;  // destroyed before the files that its hosts use
};

struct TrustRan {
    int code = -1;
    std::string text;
};

// Runs COMMAND without a terminal.
TrustRan trust_run(const std::vector<std::string>& command) {
    std::vector<std::string> words = {"setsid", "-w"};
    words.insert(words.end(), command.begin(), command.end());
    TemporaryFolder folder;
    JobProcess process(folder, words);
    const int code = process.wait();
    return {code, process.out() + process.err()};
}

struct Answer {
    std::string question;  // the last words of the question
    std::string line;
};

Answer to_keys(const std::string& line) {
    return {"Type yes to trust them: ", line};
}

Answer to_password(const std::string& line, int hosts = 2) {
    return {hosts == 1 ? " on 1 host: " : " hosts: ", line};
}

// Runs COMMAND at a terminal and gives ANSWERS to these questions only.
TrustRan run_at_terminal(const std::vector<std::string>& command, std::vector<Answer> answers) {
    TrustRan ran;
    int terminal = -1;
    const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
    REQUIRE(child >= 0);
    if (child == 0) {
        std::vector<char*> argv;
        for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
        argv.push_back(nullptr);
        ::execvp(argv[0], argv.data());
        ::_exit(126);
    }
    const auto limit = Steady::now() + kHangTime;
    bool open = true;
    while (open && Steady::now() < limit) {
        pollfd entry{terminal, POLLIN, 0};
        if (::poll(&entry, 1, 200) <= 0) continue;
        char block[1024];
        const ssize_t n = ::read(terminal, block, sizeof block);
        open = n > 0;
        if (open) ran.text.append(block, static_cast<size_t>(n));
        if (!open || answers.empty() || !ran.text.ends_with(answers.front().question)) continue;
        const std::string line = answers.front().line + "\n";
        answers.erase(answers.begin());
        REQUIRE(::write(terminal, line.data(), line.size()) == static_cast<ssize_t>(line.size()));
    }
    if (open) ::kill(child, SIGKILL);  // the command asks another question
    int status = 0;
    ::waitpid(child, &status, 0);
    ::close(terminal);
    ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    CHECK(answers.empty());
    return ran;
}

}  // namespace

TEST_CASE("hosts trust asks once for keys and once for the password, and not again") {
    const LockedHosts hosts;
    if (!hosts.usable()) return;
    const TrustRan nobody = trust_run(hosts.command({}));
    CHECK(nobody.code == 64);
    CHECK(mentions(nobody.text, "no terminal"));
    CHECK(hosts.read("known_hosts").empty());

    const TrustRan refused = run_at_terminal(hosts.command({}), {to_keys("y")});
    CHECK(refused.code == 76);
    CHECK(hosts.read("known_hosts").empty());

    const TrustRan wrong =
        run_at_terminal(hosts.command({}), {to_keys("yes"), to_password("not it")});
    CHECK(wrong.code == 67);
    CHECK(mentions(wrong.text, "n2: it does not accept the password"));
    CHECK_FALSE(mentions(wrong.text, "not it"));

    const TrustRan right = run_at_terminal(hosts.command({}), {to_password(kPassword)});
    INFO(right.text);
    CHECK(right.code == 0);
    CHECK_FALSE(mentions(right.text, kPassword));
    CHECK(mentions(right.text, "2 of 2 hosts can be reached without a password"));
    CHECK(hosts.authorized_keys(1) == hosts.read("key.pub"));

    const TrustRan again = trust_run(hosts.command({}));
    CHECK(again.code == 0);
    CHECK(hosts.authorized_keys(1) == hosts.read("key.pub"));
}

TEST_CASE("a host key that changed is named, and replaced only when it is asked for and right") {
    const LockedHosts hosts;
    if (!hosts.usable()) return;
    std::ifstream other(hosts.rig_file("other.pub"));
    std::string type, key;
    other >> type >> key;
    const std::string before = "n1 " + type + " " + key + "\n# mine\n";
    write_file(hosts.file("known_hosts"), before);
    const TrustRan changed = run_at_terminal(hosts.command({"--include", "n1"}), {});
    CHECK(changed.code == 67);
    CHECK(mentions(changed.text, "is NOT the key in"));
    CHECK(mentions(changed.text, "--replace n1"));
    CHECK(hosts.read("known_hosts") == before);

    write_file(hosts.file("fingerprints"), "n1 SHA256:AAAA\n");
    const std::vector<std::string> options = {"--include",
                                              "n1",
                                              "--replace",
                                              "n1",
                                              "--yes",
                                              "--fingerprints",
                                              hosts.file("fingerprints")};
    const TrustRan wrong = trust_run(hosts.command(options));
    CHECK(wrong.code == 67);
    CHECK(hosts.read("known_hosts") == before);

    TemporaryFolder folder;
    JobProcess keygen(folder, {"ssh-keygen", "-lf", hosts.rig_file("host.pub")});
    REQUIRE(keygen.wait() == 0);
    std::istringstream words(keygen.out());
    std::string bits, fingerprint;
    words >> bits >> fingerprint;
    write_file(hosts.file("fingerprints"), "n1 " + fingerprint + "\n");
    const TrustRan right = run_at_terminal(hosts.command(options), {to_password(kPassword, 1)});
    INFO(right.text);
    CHECK(right.code == 0);
    CHECK(mentions(right.text, "REPLACES ANOTHER"));
    CHECK_FALSE(mentions(hosts.read("known_hosts"), key));
    CHECK(mentions(hosts.read("known_hosts"), "# mine"));
}

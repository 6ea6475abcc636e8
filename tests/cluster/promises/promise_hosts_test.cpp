// P7 to P9 over hosts that are network namespaces: a cut network ends both sides, no question is
// ever asked, and all bad hosts are named at once. Negative control of the third, done by hand: if
// versions are compared only after every host has an agent, and if the text that a host sends
// instead of a greeting is not reported, only 5 of the 7 hosts are named with their cause.
#include <fmt/core.h>

#include "cluster/promise.h"
#include "launch/protocol/frame.h"
#include "launch/protocol/messages.h"
#include "support/pty_process.h"
#include "support/rig_hosts.h"

namespace dslaunch::test {

using namespace launch;
namespace {

Words over(const RigHosts& rig, const TemporaryFolder& folder, const std::string& launcher,
           const std::string& hosts, const std::string& config = "good") {
    std::ofstream(folder.path() + "/hostfile") << hosts;
    return rig.on(0, {kDslaunch, "--hostfile", folder.path() + "/hostfile", "--launcher", launcher,
                      "--ssh-config", rig.config(config), "--device", "cpu"});
}

}  // namespace

TEST_CASE("P7: a network that is cut without a word ends the job on both sides", "[.long]") {
    for (const std::string launcher : {"ssh", "openssh"}) {
        const RigHosts rig(3, "P7: a cut network");
        if (!rig.usable()) return;
        const TemporaryFolder folder;
        JobProcess job(folder, over(rig, folder, launcher, "n[1-3] slots=2\n") +
                                   Words{kStub, "stubborn", folder.path() + "/pids"});
        REQUIRE(wait_until([&] { return recorded_processes(folder).size() == 12; }));
        const auto workers = recorded_processes(folder);
        rig.cut(2);
        const auto began = Steady::now();
        const int code = job.wait();
        const double launcher_ms = milliseconds_since(began);
        INFO(job.err());
        CHECK(code == 67);
        CHECK(mentions(job.err(), "host n2 is lost: its agent has sent nothing for 15 s"));
        CHECK(wait_until([&] { return all_gone(workers); }));
        std::printf(
            "P7 %s: cable of one of 3 hosts pulled: launcher ended after %.1f s, every "
            "rank on both sides gone after %.1f s\n",
            launcher.c_str(), launcher_ms / 1000, milliseconds_since(began) / 1000);
        CHECK(launcher_ms < limit_ms(60'000));
        CHECK(milliseconds_since(began) < limit_ms(60'000));
    }
}

TEST_CASE("P8: nobody is ever asked anything, with a terminal or without") {
    const RigHosts rig(2, "P8: no prompt over ssh");
    if (!rig.usable()) return;
    // Starts a second sshd, which asks for a password.
    REQUIRE(rig.run(1, {"/usr/sbin/sshd", "-f", "/dev/null", "-p", "23", "-o",
                        "PidFile=" + rig.folder() + "/password.pid", "-o",
                        "HostKey=" + rig.folder() + "/host", "-o", "PubkeyAuthentication=no", "-o",
                        "PasswordAuthentication=yes", "-o", "UsePAM=no"}) == 0);
    rig.wait_for_port(1, 23);
    struct Row {
        std::string what, config, hosts;
    };
    // An unknown key of [n1]:23 would stop ssh before the password, so the same key is listed under
    // that name.
    std::ofstream(rig.folder() + "/known_hosts", std::ios::app) << "[n1]:23 " << [&] {
        std::ifstream file(rig.folder() + "/host.pub");
        std::string type, key;
        file >> type >> key;
        return type + " " + key;
    }() << "\n";
    const Row rows[] = {{"an unknown host key", "unknown_host_key", "n1 slots=1\n"},
                        {"a changed host key", "changed_host_key", "n1 slots=1\n"},
                        {"a server that wants a password", "good", "n1 slots=1 port=23\n"},
                        {"a key with a passphrase", "locked_key", "n1 slots=1\n"},
                        {"a key that the server does not know", "wrong_key", "n1 slots=1\n"}};
    for (const std::string launcher : {"ssh", "openssh"}) {
        Figures figures;
        int prompts = 0;
        for (const Row& row : rows) {
            for (const bool on_terminal : {false, true}) {
                const TemporaryFolder folder;
                const Words words =
                    over(rig, folder, launcher, row.hosts, row.config) + Words{"/bin/true"};
                const auto began = Steady::now();
                std::string said;
                int code = -1;
                if (on_terminal) {
                    PtyProcess job(words);
                    code = job.wait();
                    said = job.shown();
                } else {
                    JobProcess job(folder, words);
                    code = job.wait();
                    said = job.err();
                }
                INFO(launcher << ", " << row.what << (on_terminal ? ", terminal" : "") << "\n"
                              << said);
                CHECK(code == 67);
                CHECK(mentions(said, "n1: "));
                figures.add(milliseconds_since(began));
                for (const char* prompt :
                     {"assword:", "assphrase for", "(yes/no", "fingerprint])?"})
                    prompts += mentions(said, prompt) ? 1 : 0;
            }
        }
        figures.print("P8 " + launcher + ", 5 troubles with and without a terminal, " +
                      std::to_string(prompts) + " prompts: error");
        CHECK(prompts == 0);
        CHECK(figures.largest() < limit_ms(60'000));
    }
}

namespace {

// Writes the ssh config and the known keys for the rig's hosts under GOOD names, and for seven
// hosts with a different fault each.
void write_broken_hosts(const RigHosts& rig, int good) {
    std::ifstream file(rig.folder() + "/host.pub");
    std::string type, key;
    file >> type >> key;
    std::ifstream other_file(rig.folder() + "/other.pub");
    std::string other_type, other_key;
    other_file >> other_type >> other_key;
    std::ofstream known(rig.folder() + "/known_many");
    std::ofstream config(rig.folder() + "/many");
    config << "Host *\n    User root\n    IdentityFile " << rig.folder()
           << "/user\n    IdentitiesOnly yes\n    UserKnownHostsFile " << rig.folder()
           << "/known_many\n    GlobalKnownHostsFile /dev/null\n";
    for (int i = 1; i <= good; ++i) known << "g" << i << " " << type << " " << key << "\n";
    for (const char* name : {"refused", "denied", "silent", "other", "chatter"})
        known << name << " " << type << " " << key << "\n";
    for (const char* name :
         {"[other]:24", "[chatter]:25", "[silent]:26", "[refused]:2", "[denied]:27"})
        known << name << " " << type << " " << key << "\n";
    known << "changed " << other_type << " " << other_key << "\n";
}

void start_sshd(const RigHosts& rig, int port, const std::string& force,
                const std::string& keys = "authorized_keys") {
    REQUIRE(rig.run(1, {"/usr/sbin/sshd", "-f", "/dev/null", "-p", std::to_string(port), "-o",
                        "PidFile=none", "-o", "HostKey=" + rig.folder() + "/host", "-o",
                        "AuthorizedKeysFile=" + rig.folder() + "/" + keys, "-o", "StrictModes=no",
                        "-o", "UsePAM=no", "-o", "SetEnv=HOME=" + rig.folder() + "/home", "-o",
                        "ForceCommand=" + force}) == 0);
    rig.wait_for_port(1, port);
}

// Runs a job on GOOD hosts and on seven hosts with a different fault each.
void name_broken_hosts(int good) {
    const RigHosts rig(2, "P9: many hosts");
    if (!rig.usable()) return;
    write_broken_hosts(rig, good);
    const TemporaryFolder folder;
    // This is another dslaunch: the same program with one more byte at its end.
    REQUIRE(rig.run(1, {"sh", "-c",
                        "cp " + kDslaunch + " " + folder.path() + "/other && echo >> " +
                            folder.path() + "/other"}) == 0);
    start_sshd(rig, 24, folder.path() + "/other agent --stdio");
    start_sshd(rig, 25, "/bin/echo what is this");
    start_sshd(rig, 27, "/bin/true", "no_keys");
    const TemporaryFolder listener_folder;
    JobProcess silent(listener_folder, rig.on(1, {kStub, "listen", "26"}));
    REQUIRE(wait_until([&] { return mentions(silent.out(), "ready"); }));
    std::string hosts;
    for (int i = 1; i <= good; ++i)
        hosts += fmt::format("g{} slots=1 addr=10.91.7.{}\n", i, 2 + i % 2);
    hosts +=
        "nosuch.invalid slots=1\nrefused slots=1 addr=10.91.7.2 port=2\n"
        "changed slots=1 addr=10.91.7.2\ndenied slots=1 addr=10.91.7.2 port=27\n"
        "silent slots=1 addr=10.91.7.2 port=26\nother slots=1 addr=10.91.7.2 port=24\n"
        "chatter slots=1 addr=10.91.7.2 port=25\n";
    for (const std::string launcher : {"ssh", "openssh"}) {
        const TemporaryFolder job_folder;
        const auto began = Steady::now();
        JobProcess job(job_folder, over(rig, job_folder, launcher, hosts, "many") +
                                       Words{"sh", "-c", "echo ran"});
        const int code = job.wait();
        const double wall_ms = milliseconds_since(began);
        INFO(job.err());
        CHECK(code == 67);
        CHECK(mentions(job.err(), fmt::format("7 of {} hosts", good + 7)));
        CHECK(job.out().empty());
        int named = 0;
        const std::pair<std::string, std::string> wanted[] = {
            {"nosuch.invalid", "nosuch.invalid"},
            {"refused", "efused"},
            {"changed", "ost key"},
            {"denied", "denied"},
            {"silent", ""},
            {"other", "differs from this machine's dslaunch"},
            {"chatter", "what is this"}};
        for (const auto& [host, cause] : wanted) {
            const size_t at = job.err().find("\n  " + host + ": ");
            INFO(host);
            CHECK(at != std::string::npos);
            if (at == std::string::npos) continue;
            const std::string line = job.err().substr(at + 1, job.err().find('\n', at + 1) - at);
            INFO(line);
            const bool right = mentions(line, cause);
            CHECK(right);
            named += right ? 1 : 0;
        }
        std::printf(
            "P9 %s: %d hosts, broken ones named with their cause in one message: %d of 7, "
            "after %.1f s\n",
            launcher.c_str(), good + 7, named, wall_ms / 1000);
    }
}

}  // namespace

TEST_CASE("P9: of 16 hosts 7 are broken in 7 ways, and all 7 are named in one message") {
    name_broken_hosts(9);
}
TEST_CASE("P9 with 64 hosts", "[.long]") {
    name_broken_hosts(57);
}

namespace {

// Runs a job of /bin/true on COUNT pretended hosts, each with an agent.
void start_agents(int count, int fanout) {
    std::string hosts = "n1";
    for (int i = 2; i <= count; ++i) hosts += fmt::format(",n{}", i);
    const TemporaryFolder folder;
    const auto began = Steady::now();
    JobProcess job(folder, {std::string(test::binary_dir()) + "/launch_probe", "transport=local",
                            "hosts=" + hosts, fmt::format("fanout={}", fanout), "connect_ms=240000",
                            "--", "/bin/true"});
    const int code = job.wait();
    INFO(job.err());
    CHECK(code == 0);
    std::printf("P9 %d agents on one machine, fan-out %d: job over after %.1f s\n", count, fanout,
                milliseconds_since(began) / 1000);
}

}  // namespace

TEST_CASE("P9: an agent waits for a launcher that has many others to start", "[.long]") {
    const TemporaryFolder folder;
    Hello hello;
    hello.node_name = "n1";
    std::ofstream(folder.path() + "/hello", std::ios::binary)
        << encode(Frame{FrameKind::kHello, encode(hello)});
    // This silence is longer than the silence that ends an agent while its job runs.
    JobProcess agent(folder, {"sh", "-c",
                              fmt::format("(sleep 18; cat {}/hello; sleep 2) | {} agent --stdio",
                                          folder.path(), kDslaunch)});
    static_cast<void>(agent.wait());
    INFO(agent.err());
    FrameDecoder frames(/*with_greeting=*/true);
    frames.append(agent.out());
    const auto answer = frames.next();
    REQUIRE(answer.has_value());
    CHECK(answer->kind == FrameKind::kAgentHello);
}

TEST_CASE("P9: a thousand agents run one job, with a tree and without", "[.long]") {
    for (const int fanout : {32, 0}) start_agents(1'000, fanout);
}

}  // namespace dslaunch::test

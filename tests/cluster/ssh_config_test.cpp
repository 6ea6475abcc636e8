// Each directive of the user's ssh configuration on real hosts: the built-in ssh obeys it, or names
// it in an error. It never asks a question.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "support/catch.h"
#include "support/job_end.h"
#include "support/job_process.h"
#include "support/pty_process.h"
#include "support/rig_hosts.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::test;

namespace {

// A public key on a FIDO device, with the bytes 0..31 as its point.
const std::string kHardwareKey =
    "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIAABAgMEBQYHCAkKCwwN"
    "Dg8QERITFBUWFxgZGhscHR4fAAAABHNzaDo= rig\n";

std::string ssh_config_replaced(std::string text, const std::string& what,
                                const std::string& with) {
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
        text.replace(at, what.size(), with);
    }
    return text;
}

struct SshConfigRow {
    std::string host;
    std::string lines;  // lines before the rig's working configuration; RIG means its folder
    std::string cause;  // empty: the job runs
};

std::vector<std::string> probe(const RigHosts& rig, const std::string& transport,
                               const std::string& config, const std::string& host) {
    return rig.on(0, {kProbe, "transport=" + transport, "ssh_config=" + config, "hosts=" + host,
                      "--", "echo", "ran"});
}

// Makes the files that the rows name.
void prepare(const RigHosts& rig) {
    const std::string& folder = rig.folder();
    const std::string key = content_of(folder + "/host.pub");
    const std::string bare = key.substr(0, key.find(' ', key.find(' ') + 1));
    write_file(folder + "/farm_hosts", "farm " + bare + "\n");
    write_file(folder + "/authority_hosts", "# one line\n@cert-authority n* " + bare + "\n");
    write_file(folder + "/revoked_hosts",
               content_of(folder + "/known_hosts") + "@revoked * " + bare + "\n");
    write_file(folder + "/hashed_hosts", content_of(folder + "/known_hosts"));
    REQUIRE(std::system(
                ("ssh-keygen -q -H -f " + folder + "/hashed_hosts 2>/dev/null >&2").c_str()) == 0);
    REQUIRE_FALSE(mentions(content_of(folder + "/hashed_hosts"), "n1 "));
    REQUIRE(std::system(("cp " + folder + "/user " + folder + "/user-n1-root").c_str()) == 0);
    write_file(folder + "/hardware", "a handle that only the device can use\n");
    write_file(folder + "/hardware.pub", kHardwareKey);
    write_file(folder + "/included", content_of(folder + "/good"));
}

// Returns the rig's working configuration, without its key if ROW names a key.
std::string rest(const RigHosts& rig, const SshConfigRow& row) {
    std::string text = content_of(rig.folder() + "/good");
    if (!mentions(row.lines, "IdentityFile")) return text;
    const size_t at = text.find("    IdentityFile ");
    return text.erase(at, text.find('\n', at) + 1 - at);
}

const std::string kNoKey = "Host n1\n IdentityFile RIG/other\n";

const std::vector<SshConfigRow> kSshConfigRows = {
    {"n1", "Include RIG/included\nHost *\n IdentityFile /nonexistent\n", ""},
    {"web", "Match originalhost web exec \"test %n = web\"\n HostName n1\n", ""},
    {"web",
     "Match final host n1\n IdentityFile RIG/user\nHost web\n HostName n1\n"
     " IdentityFile /nonexistent\n",
     ""},
    {"n1", "Host n1\n HostKeyAlias farm\n UserKnownHostsFile RIG/farm_hosts\n", ""},
    {"n1", "Host n1\n UserKnownHostsFile RIG/farm_hosts\n", "is in no known_hosts file"},
    {"n1", "Host n1\n UserKnownHostsFile /dev/null RIG/known_hosts\n", ""},
    {"n1", "Host n1\n UserKnownHostsFile RIG/hashed_hosts\n HashKnownHosts yes\n", ""},
    {"n1", "Host n1\n UserKnownHostsFile RIG/revoked_hosts\n", "is revoked at RIG/revoked_hosts:4"},
    {"n1", "Host n1\n UserKnownHostsFile RIG/authority_hosts\n",
     "RIG/authority_hosts:2: `@cert-authority` is not supported by the built-in ssh"},
    {"n1", "Host n1\n GlobalKnownHostsFile RIG/known_hosts\n UserKnownHostsFile /dev/null\n", ""},
    {"n1", "Host n1\n IdentityFile RIG/certified\n CertificateFile RIG/certificate.pub\n", ""},
    {"n1", "Host n1\n IdentityFile RIG/user-%n-%r\nHost *\n IdentityFile /nonexistent\n", ""},
    {"n1", "Host n1\n ControlMaster auto\n ControlPath RIG/%C\n ControlPersist yes\n", ""},
    {"n1", "Host n1\n AddressFamily inet\n BindAddress 10.91.7.1\n", ""},
    {"n1", "Host n1\n AddressFamily inet6\n", "the name `n1` does not resolve"},
    {"n1", "Host n1\n BindAddress 10.91.7.99\n", "(BindAddress 10.91.7.99)"},
    {"n1",
     "Host n1\n RemoteCommand false\n RequestTTY force\n SendEnv LANG LC_*\n"
     " SetEnv A=b\n BatchMode no\n StrictHostKeyChecking no\n ForwardAgent yes\n",
     ""},
    {"n1",
     "Host n1\n Ciphers aes128-ctr\n MACs hmac-sha2-256\n KexAlgorithms curve25519-sha256\n"
     " HostKeyAlgorithms ssh-ed25519\n PubkeyAcceptedAlgorithms ssh-ed25519\n"
     " Compression yes\n RekeyLimit 1G 1h\n",
     ""},
    {"n1", "Host n1\n Ciphers rot13\n", "libssh does not support `ciphers rot13`"},
    {"n2", "Host n2\n ProxyJump n1\n", ""},
    {"n3", "Host n3\n ProxyJump n1,root@n2:22\n", ""},
    {"n3", "Host n3\n ProxyJump n2\nHost n2\n ProxyJump n1\n", ""},
    {"n2", "Host n2\n ProxyJump none\n ProxyCommand false\n", ""},
    {"n2", "Host n2\n ProxyJump n1\nHost n1\n IdentityFile RIG/other\n",
     "over n1: Permission denied"},
    {"n2", "Host n2\n ProxyJump n1\n Port 23\n", "over n1: it cannot reach n2:23"},
    {"n2", "Host n2\n ProxyCommand ssh -F RIG/good -W %h:%p n1\n", ""},
    {"n2", "Host n2\n ProxyCommand echo no way there >&2; exit 1\n",
     "its ProxyCommand ended: no way there"},
    {"n1", "Host n1\n CanonicalizeHostname yes\n", "config:2: `canonicalizehostname yes` is not"},
    {"n1", "Host n1\n PKCS11Provider /lib/p11.so\n", "config:2: `pkcs11provider /lib/p11.so` is"},
    {"n1", kNoKey + " GSSAPIAuthentication yes\n",
     "gssapiauthentication (RIG/config:3) works only with --launcher openssh"},
    {"n1", kNoKey, "Permission denied: it accepts none of your keys; install a key there with"},
    {"n1", "Host n1\n IdentityFile RIG/locked\n",
     "one key needs a passphrase: load it with ssh-add RIG/locked"},
    {"n1", "Host n1\n IdentityFile RIG/hardware\n", "RIG/hardware is on a FIDO device"},
    {"n1", "Host n1\n Port 2222\n", "it accepts no keys, only a password or similar"},
    {"10.91.7.77", "Host *\n ConnectTimeout 1\n", "cannot connect: no answer within 1 s"},
};

size_t threads_of(pid_t process) {
    std::error_code gone;
    const std::filesystem::directory_iterator tasks("/proc/" + std::to_string(process) + "/task",
                                                    gone);
    return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

}  // namespace

TEST_CASE("each directive of an ssh configuration works or is refused by name") {
    const RigHosts rig(3, "ssh configurations on hosts made of network namespaces");
    if (!rig.usable()) return;
    prepare(rig);
    const std::string config = rig.folder() + "/config";
    double slowest_ms = 0;
    for (const SshConfigRow& row : kSshConfigRows) {
        write_file(config, ssh_config_replaced(row.lines, "RIG", rig.folder()) + rest(rig, row));
        const TemporaryFolder folder;
        const auto began = Steady::now();
        JobProcess job(folder, probe(rig, "ssh", config, row.host));
        const int code = job.wait();
        const double ms = to_milliseconds(Steady::now() - began);
        INFO(row.lines << "\n" << job.err());
        if (row.cause.empty()) {
            CHECK(code == 0);
            CHECK(mentions(job.out(), "ran"));
            continue;
        }
        slowest_ms = std::max(slowest_ms, ms);
        CHECK(code == 67);
        CHECK(mentions(job.err(), row.host + ": "));
        CHECK(mentions(job.err(), ssh_config_replaced(row.cause, "RIG", rig.folder())));
        CHECK(job.out().empty());
        CHECK(ms < limit_ms(60'000));
    }
    std::printf("ssh configurations: the slowest of the refusals after %.0f ms\n", slowest_ms);
}

TEST_CASE("with a terminal at hand neither ssh transport asks anything on it") {
    const RigHosts rig(1, "ssh without questions on a terminal");
    if (!rig.usable()) return;
    const std::string& folder = rig.folder();
    write_file(folder + "/password_only", "Host n1\n Port 2222\n" + content_of(folder + "/good"));
    write_file(folder + "/asking_way", "Host n1\n ProxyCommand ssh -F " + folder +
                                           "/unknown_host_key -W %h:%p n1\n" +
                                           content_of(folder + "/good"));
    write_file(folder + "/asking_jump",
               "Host n1\n HostName n1\nHost n9\n HostName n1\n ProxyJump n1\n" +
                   content_of(folder + "/locked_key"));
    for (const std::string transport : {"ssh", "openssh"}) {
        for (const std::string config :
             {"unknown_host_key", "changed_host_key", "locked_key", "wrong_key", "password_only",
              "asking_way", "asking_jump"}) {
            const std::string host = config == "asking_jump" ? "n9" : "n1";
            PtyProcess job(probe(rig, transport, folder + "/" + config, host));
            const auto began = Steady::now();
            CHECK(job.wait() == 67);
            const double ms = to_milliseconds(Steady::now() - began);
            INFO(transport << " " << config << ": " << job.shown());
            CHECK(mentions(job.shown(), host + ": "));
            for (const char* question : {"yes/no", "assword:", "assphrase for"}) {
                CHECK_FALSE(mentions(job.shown(), question));
            }
            CHECK(ms < limit_ms(60'000));
            std::printf("%s %s on a terminal: error after %.0f ms\n", transport.c_str(),
                        config.c_str(), ms);
        }
    }
}

TEST_CASE("a slow name server delays only the hosts that it is asked for") {
    const RigHosts rig(1, "names looked up beside the connections");
    if (!rig.usable()) return;
    // No host has the name server's address, so each look-up takes S seconds until it fails.
    const auto set_look_up = [file = "/etc/netns/" + rig.on(0, {})[3] + "/resolv.conf"](int s) {
        write_file(file,
                   "nameserver 10.91.7.77\noptions attempts:1 timeout:" + std::to_string(s) + "\n");
    };
    set_look_up(2);
    std::string hosts = "n1";
    for (int i = 0; i < 24; ++i) hosts += ",slow" + std::to_string(i) + ".invalid";
    const std::string config = rig.folder() + "/good";
    const TemporaryFolder folder;
    const auto began = Steady::now();
    JobProcess job(folder, probe(rig, "ssh", config, hosts));
    CHECK(job.wait() == 67);
    const double ms = to_milliseconds(Steady::now() - began);
    std::printf("24 names on a dead name server: error after %.0f ms\n", ms);
    CHECK(ms > 1'000);
    CHECK(mentions(job.err(), "24 of 25 hosts"));
    // In one thread, one name after the other, the look-ups would take twelve minutes.
    set_look_up(30);
    const TemporaryFolder second;
    JobProcess interrupted(second, probe(rig, "ssh", config, hosts));
    REQUIRE(wait_until([&] { return holds_signal(interrupted.pid(), SIGINT); }));
    CHECK(wait_until([&] { return threads_of(interrupted.pid()) > 24; }));
    interrupted.signal(SIGINT);
    CHECK(interrupted.wait() == 76);  // before the look-up is over
}

TEST_CASE("64 hosts behind one sshd as it is set up by default start") {
    const RigHosts rig(
        {.count = 1, .what = "64 sessions with one sshd", .max_startups = "10:30:100"});
    if (!rig.usable()) return;
    std::string hosts = "n1";
    for (int i = 1; i < 64; ++i) hosts += ",n1";
    for (const std::string transport : {"ssh", "openssh"}) {
        const TemporaryFolder folder;
        const auto began = Steady::now();
        JobProcess job(folder, probe(rig, transport, rig.folder() + "/good", hosts));
        const int code = job.wait();
        INFO(job.err());
        CHECK(code == 0);
        std::printf("%s: 64 hosts behind one sshd (MaxStartups 10:30:100) in %.0f ms\n",
                    transport.c_str(), to_milliseconds(Steady::now() - began));
    }
}

#include "launch/transport/ssh/ssh_config.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "base/error.h"
#include "launch/transport/ssh/ssh_target.h"
#include "launch/transport/ssh_options_file.h"
#include "launch/transport/transport.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/skip.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

SshTarget resolve(const TemporaryFolder& folder, const std::string& text,
                  const std::string& host = "n1") {
    write_file(folder.path() + "/config", text);
    return resolve_ssh_target({host, {}, 0, {}}, folder.path() + "/config");
}

std::string refusal(const std::string& text) {
    const TemporaryFolder folder;
    return error_of(ExitCode::kUsage, [&] { resolve(folder, text); });
}

// Asks `ssh -G` for its output. Returns the last value of each keyword.
std::map<std::string, std::string> ask_ssh(const TemporaryFolder& folder, const std::string& host) {
    JobProcess process(folder, {"ssh", "-G", "-F", folder.path() + "/config", host});
    REQUIRE(process.wait() == 0);
    std::map<std::string, std::string> values;
    std::istringstream lines(process.out());
    for (std::string line; std::getline(lines, line);) {
        const size_t space = line.find(' ');
        values[line.substr(0, space)] = space == std::string::npos ? "" : line.substr(space + 1);
    }
    return values;
}

}  // namespace

TEST_CASE("an ssh configuration means to the built-in ssh what it means to ssh itself") {
    if (std::system("command -v ssh >/dev/null") != 0) {
        return report_skipped("the ssh configuration against ssh -G", "openssh-client is missing");
    }
    struct Row {
        std::string host;
        std::string text;
    };
    const Row rows[] = {
        {"n1", "Host n1\n HostName 10.0.0.1\n Port 2201\n User ada\nHost *\n User bob\n Port 2\n"},
        {"n2", "Host n1\n User ada\nHost n* !n2\n User eve\nHost *\n\tUser=bob\n"},
        {"n1", "Host n?\n  HostName %h.example.org\nMatch host n1.example.org\n User ada\n"},
        {"n1", "Match originalhost n1\n HostName \"a b\"\n HostName c\nMatch host n1\n Port 7\n"},
        {"n1", "Match host n1 exec \"test %n = n1\"\n Port 77\nMatch exec false\n Port 78\n"},
        {"n1", "Match !exec \"false\" user root\n Port 79\nMatch all\n Port 80\n"},
        {"n1", "Match final host n9\n Port 81\nHost *\n HostName n9\n"},
        {"n1", "Tag gpu\nHost *\n IgnoreUnknown Tag,UseKeychain\n UseKeychain yes\n User q\n"},
        {"n1", "ProxyJump a@b:22,c\nProxyCommand nc %h %p\nUser u # a comment\n"},
        {"n1", "ProxyCommand nc \"%h\" %p # not a comment\nProxyJump b\n"},
        {"n1", "ProxyJump none\nProxyJump b\nConnectTimeout 7\nAddressFamily inet6\n"},
        {"n1", "Include FOLDER/part*\nUser late\nHost n2\n Include FOLDER/part2\n Port 9\n"},
        {"n1", "IdentityFile ~/a\nIdentityFile /b-%n-%r\nIdentitiesOnly yes\nCompression yes\n"},
        {"n1", "HostKeyAlias farm\nUserKnownHostsFile ~/k1 /k2\nBindAddress 10.1.1.1\n"},
    };
    for (const Row& row : rows) {
        const TemporaryFolder folder;
        std::string text = row.text;
        for (size_t at = 0; (at = text.find("FOLDER")) != std::string::npos;) {
            text.replace(at, 6, folder.path());
        }
        // ssh 9.2 knows no Tag; the built-in resolver does.
        const bool is_tag = text.starts_with("Tag");
        write_file(folder.path() + "/part1", "Host n1\n Port 3333\nHost n2\n Port 4444\n");
        write_file(folder.path() + "/part2", "Compression yes\n");
        INFO(text);
        const SshTarget ours =
            resolve(folder, is_tag ? text.substr(text.find('\n') + 1) : text, row.host);
        const auto theirs = ask_ssh(folder, row.host);
        CHECK(ours.host_name == theirs.at("hostname"));
        CHECK(std::to_string(ours.port) == theirs.at("port"));
        CHECK(ours.user == theirs.at("user"));
        CHECK(ours.identities_only == (theirs.at("identitiesonly") == "yes"));
        CHECK(ours.compression == (theirs.at("compression") == "yes"));
        CHECK(ours.jumps.empty() == !theirs.contains("proxyjump"));
        CHECK(ours.proxy_command.empty() == !theirs.contains("proxycommand"));
        CHECK(ours.bind_address ==
              (theirs.contains("bindaddress") ? theirs.at("bindaddress") : ""));
    }
}

TEST_CASE("tokens, folders and lists of an ssh configuration are filled in") {
    const TemporaryFolder folder;
    const SshTarget target = resolve(
        folder,
        "Host n1\n HostName %h.lan\n Port 2222\n User ada\n IdentityFile /k/%n-%r-%p-%%-%h\n"
        " UserKnownHostsFile /one /two\n"
        " GlobalKnownHostsFile none\n RekeyLimit 2M 3h\n ProxyJump "
        "u@a:2022,[fd00::1]:24,ssh://b\n");
    CHECK(target.host_name == "n1.lan");
    CHECK(target.key_name == "[n1.lan]:2222");
    CHECK(target.identity_files == std::vector<std::string>{"/k/n1-ada-2222-%-n1.lan"});
    CHECK(target.known_hosts_files == std::vector<std::string>{"/one", "/two"});
    CHECK(target.rekey_bytes == 2'097'152);
    CHECK(target.rekey_s == 10'800);
    REQUIRE(target.jumps.size() == 3);
    CHECK((target.jumps[0].name == "a" && target.jumps[0].user == "u" &&
           target.jumps[0].port == 2022));
    CHECK((target.jumps[1].name == "fd00::1" && target.jumps[1].port == 24));
    CHECK((target.jumps[2].name == "b" && target.jumps[2].port == 0));
}

TEST_CASE("user, port and address of the hostfile come before the ssh configuration") {
    const TemporaryFolder folder;
    write_file(folder.path() + "/config", "Host *\n User bob\n Port 7\n HostName elsewhere\n");
    const SshTarget target =
        resolve_ssh_target({"n1", "ada", 2201, "10.0.0.9"}, folder.path() + "/config");
    CHECK(target.user == "ada");
    CHECK(target.port == 2201);
    CHECK(target.host_name == "10.0.0.9");
    CHECK(target.key_name == "n1");
}

TEST_CASE("what libssh cannot do is refused by file, line and directive") {
    struct Row {
        std::string line;
        std::string text;
    };
    const Row rows[] = {
        {"CanonicalizeHostname yes",
         "`canonicalizehostname yes` is not supported by the built-in ssh"},
        {"KnownHostsCommand /bin/keys %H", "`knownhostscommand /bin/keys %H` is not supported"},
        {"RevokedHostKeys /etc/revoked", "`revokedhostkeys /etc/revoked` is not supported"},
        {"PKCS11Provider /lib/p11.so", "`pkcs11provider /lib/p11.so` is not supported"},
        {"IdentityFile pkcs11:token=x", "`IdentityFile pkcs11:...` is not supported"},
        {"PubkeyAuthentication no", "`pubkeyauthentication no` is not supported"},
        {"PreferredAuthentications password",
         "`preferredauthentications password` is not supported"},
        {"ProxyUseFdpass yes", "`proxyusefdpass yes` is not supported"},
        {"BindInterface eth0", "`bindinterface eth0` is not supported"},
        {"Match localnetwork 10.0.0.0/8",
         "`Match localnetwork` is not supported by the built-in ssh"},
        {"Match exec \"test %C\"", "Match exec with %C is not supported"},
        {"HostName %C", "hostname with the token %C is not supported"},
        {"Frobnicate yes", "does not support the keyword `frobnicate`"},
        {"User \"ada", "a quote is not closed"},
        {"Port 70000", "`port 70000` is not a number from 1 to 65535"},
        {"ProxyJump a;b", "ProxyJump: `a;b` is not [user@]host[:port]"},
        {"ProxyJump [::1]x22", "ProxyJump: `[::1]x22` is not [user@]host[:port]"},
        {std::string("ProxyJump [::1\0;b]", 18), "`[::1\\x00;b]` is not [user@]host[:port]"},
        {"RekeyLimit \"\"", "RekeyLimit: `` is not a valid limit"},
        {"RekeyLimit 1G 8000w", "RekeyLimit: the time must be at most 136 years"},
        {"HostName a%\x1b[2J", "hostname with the token %\\x1b is not supported"},
        {"Match exec %\x1b[2J", "Match exec with %\\x1b is not supported"},
        {"Match \x1b[2J", "Match \\x1b[2j has no value"},
        {"Compression", "`compression` has no value"},
    };
    for (const Row& row : rows) {
        INFO(row.line);
        const std::string message = refusal("# first\nHost n1\n  " + row.line + "\n");
        INFO(message);
        CHECK(message.find("/config:3: ") != std::string::npos);
        CHECK(message.find(row.text) != std::string::npos);
    }
    // The same lines for another host, or lines that ask for nothing, do no harm.
    CHECK(refusal("Host other\n CanonicalizeHostname yes\n KnownHostsCommand /x\n") == "accepted");
    CHECK(refusal("CanonicalizeHostname no\nPKCS11Provider none\nRevokedHostKeys none\n"
                  "PreferredAuthentications gssapi-with-mic,publickey\nGSSAPIAuthentication yes\n"
                  "ControlMaster auto\nControlPath ~/%C\nControlPersist 60\nSendEnv LANG\n"
                  "RequestTTY force\nRemoteCommand tmux\nHashKnownHosts yes\n") == "accepted");
    CHECK(refusal("Include /nonexistent/*\n") == "accepted");
}

TEST_CASE("an ssh configuration that includes itself ends") {
    const TemporaryFolder folder;
    CHECK_THROWS_WITH(resolve(folder, "Include " + folder.path() + "/config\n"),
                      Catch::Contains("Include is nested deeper than 16 files"));
}

TEST_CASE("a named ssh configuration that is missing is an error") {
    CHECK_THROWS_WITH(resolve_ssh_target({"n1", {}, 0, {}}, "/proc/nonexistent/config"),
                      Catch::Contains("/proc/nonexistent/config cannot be read"));
}

TEST_CASE("an ssh configuration that others may write is not obeyed") {
    const TemporaryFolder folder;
    const std::string config = folder.path() + "/config";
    const std::string included = folder.path() + "/included";
    write_file(included, "Port 2201\n");
    write_file(config, "Include " + included + "\n");
    const auto port = [&] { return resolve_ssh_target({"n1", {}, 0, {}}, config).port; };
    const auto is_refused = [&] {
        try {
            static_cast<void>(port());
            return false;
        } catch (const Error& error) {
            CHECK(error.code() == ExitCode::kUsage);
            CHECK_THAT(error.what(), Catch::Contains("written by other users"));
            return true;
        }
    };
    struct Row {
        mode_t config, included;
        bool refused;
    };
    // ssh itself takes a configuration that was given by name, even if its group may write it. It
    // takes no included one like that.
    for (const Row& row : {Row{0644, 0644, false}, Row{0664, 0600, false}, Row{0646, 0644, true},
                           Row{0644, 0664, true}, Row{0644, 0646, true}}) {
        ::chmod(config.c_str(), row.config);
        ::chmod(included.c_str(), row.included);
        INFO(fmt::format("{:o} {:o}", row.config, row.included));
        CHECK(is_refused() == row.refused);
        if (!row.refused) CHECK(port() == 2201);
    }
}

// ssh checks the owner and mode of the files that it finds or includes. It takes a file that -F
// names from any owner.
TEST_CASE("an ssh configuration that others may write is given to no program") {
    const TemporaryFolder folder;
    const std::string config = folder.path() + "/config";
    write_file(config, "Port 2201\n");
    const std::function<void(const std::string&)> uses[] = {
        [](const std::string& path) { static_cast<void>(make_openssh_transport(path)); },
        [](const std::string& path) { static_cast<void>(SshOptionsFile({}, path, {})); },
    };
    for (const auto& use : uses) {
        for (const mode_t mode : {0600, 0664}) {
            ::chmod(config.c_str(), mode);
            CHECK_NOTHROW(use(config));
        }
        ::chmod(config.c_str(), 0646);
        CHECK_THROWS_WITH(use(config), Catch::Contains("config can be written by other users"));
        CHECK_THROWS_WITH(use(folder.path()), Catch::Contains("it is a folder"));
        CHECK_THROWS_WITH(use(folder.path() + "/missing"), Catch::Contains("cannot be read"));
        for (const char* path : {"", "none", "/dev/null"}) CHECK_NOTHROW(use(path));
    }
}

TEST_CASE("a pipe in the place of an ssh configuration is refused and not waited for") {
    const TemporaryFolder folder;
    const std::string fifo = folder.path() + "/config";
    REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
    CHECK_THROWS_WITH(resolve_ssh_target({"n1", {}, 0, {}}, fifo), Catch::Contains("is not used"));
    CHECK(resolve_ssh_target({"n1", {}, 0, {}}, "/dev/null").port == 22);
}

// The files that `hosts trust` writes contain only keys, each at the right hosts.
#include "launch/fleet/trust_files.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "support/catch.h"
#include "support/job_process.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

TEST_CASE("a public key is one line of plain characters, with nothing before it") {
    for (const std::string good : {"ssh-ed25519 AAAAC3+/= me@host", "ecdsa-sha2-nistp256 AAAA",
                                   "ssh-rsa AAAA a b", "sk-ssh-ed25519@openssh.com AAAA x"}) {
        INFO(good);
        CHECK(is_public_key_line(good));
    }
    for (const std::string bad :
         {"", "ssh-ed25519", "command=\"rm\" ssh-ed25519 AAAA", "ssh-ed25519 AAAA\nssh-rsa BBBB",
          "ssh-ed25519 AAAA $(x)", "ssh-ed25519 AAAA `x`", "ssh-ed25519 AAAA 'x'",
          "ssh-ed25519 AAAA x;y", "restrict ssh-ed25519 AAAA", "ssh-ed25519 AAAA \\",
          "ssh-ed25519 AAAA\r", "-e ssh-ed25519 AAAA"}) {
        INFO(bad);
        CHECK_FALSE(is_public_key_line(bad));
    }
}

TEST_CASE("a new key pair is private, and is found the next time") {
    TemporaryFolder folder;
    const std::string identity = folder.path() + "/new/id";
    std::string made;
    const std::string key = find_or_make_public_key(identity, made);
    CHECK(made == identity);
    CHECK(is_public_key_line(key));
    struct stat status {};
    REQUIRE(::stat(identity.c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
    REQUIRE(::stat((folder.path() + "/new").c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0700);
    std::string made_again;
    CHECK(find_or_make_public_key(identity, made_again) == key);
    CHECK(made_again.empty());
    // The private key and the public one belong together.
    CHECK(std::system(("test \"$(ssh-keygen -yf " + identity +
                       " | cut -d' ' -f2)\" = \"$(cut -d' ' -f2 " + identity + ".pub)\"")
                          .c_str()) == 0);
    // A private key without its public half is not overwritten.
    std::ofstream(folder.path() + "/alone") << "private";
    CHECK_THROWS_AS(find_or_make_public_key(folder.path() + "/alone", made), Error);
    CHECK(folder.read("alone") == "private");
}

TEST_CASE("the standard identity without its public half is not overwritten either") {
    TemporaryFolder folder;
    const std::string before = std::getenv("HOME");
    ::setenv("HOME", folder.path().c_str(), 1);
    std::filesystem::create_directory(folder.path() + "/.ssh");
    std::ofstream(folder.path() + "/.ssh/id_ed25519") << "private";
    std::string made;
    for (const std::string& identity : {std::string(), folder.path() + "/.ssh/id_ed25519"})
        CHECK_THROWS_AS(find_or_make_public_key(identity, made), Error);
    ::setenv("HOME", before.c_str(), 1);
    CHECK(folder.read(".ssh/id_ed25519") == "private");
}

TEST_CASE("lines are added to known_hosts after whatever its last line is") {
    TemporaryFolder folder;
    const std::string file = folder.path() + "/k";
    add_known_hosts(file, "a ssh-ed25519 A\n");
    CHECK(folder.read("k") == "a ssh-ed25519 A\n");
    std::ofstream(file, std::ios::trunc) << "# no end";
    add_known_hosts(file, "b ssh-ed25519 B\n");
    CHECK(folder.read("k") == "# no end\nb ssh-ed25519 B\n");
}

// Tests of bundles: equal files give equal bundles, and a bundle is read back only if its content
// is as its manifest says.
#include <zstd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "launch/files/file_facts.h"
#include "launch/files/ustar.h"
#include "launcher/hosts/bundle_archive.h"
#include "launcher/hosts/host_command.h"
#include "launcher/hosts/push_files.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::launcher;
using namespace dslaunch::test;

namespace {

void write_zstd(const std::string& path, const std::string& content) {
    std::string out(ZSTD_compressBound(content.size()), '\0');
    out.resize(ZSTD_compress(out.data(), out.size(), content.data(), content.size(), 1));
    write_file(path, out);
}

std::string entry(const std::string& name, const std::string& content) {
    const auto bytes = static_cast<int64_t>(content.size());
    return ustar_header({name, bytes, 0644, 0}) + content + std::string(ustar_padding(bytes), '\0');
}

std::string manifest(const std::string& name, const std::string& content) {
    Sha256 hash;
    hash.add(content);
    return entry("manifest.json", R"({"format":"dslaunch-bundle-1","files":[{"name":")" + name +
                                      R"(","bytes":)" + std::to_string(content.size()) +
                                      R"(,"mode":420,"sha256":")" + hash.hex() + "\"}]}");
}

// Returns a manifest that names NAME TIMES times. BYTES and MODE are in JSON's form.
std::string described(const std::string& name, const std::string& bytes, const std::string& mode,
                      int times = 1) {
    std::string files;
    for (int i = 0; i < times; ++i) {
        files += (i == 0 ? "" : ",") + (R"({"name":")" + name) + R"(","bytes":)" + bytes +
                 R"(,"mode":)" + mode + R"(,"sha256":""})";
    }
    return entry("manifest.json", R"({"format":"dslaunch-bundle-1","files":[)" + files + "]}");
}

std::string bundle_refusal(const TemporaryFolder& folder, const std::string& tar) {
    write_zstd(folder.path() + "/b", tar);
    const ScratchFolder scratch;
    try {
        static_cast<void>(unpack_bundle(folder.path() + "/b", scratch.path()));
    } catch (const Error& error) {
        return error.what();
    }
    return "accepted";
}

}  // namespace

TEST_CASE("a bundle reads back, tar reads it too, and equal files make equal bundles") {
    TemporaryFolder folder;
    const std::string at = folder.path() + "/";
    write_file(at + "one", std::string(3'000'000, 'x') + "end");
    write_file(at + "two", "");
    ::chmod((at + "one").c_str(), 0755);
    const std::vector<BundleFile> files = {{at + "two", "files/two"}, {at + "one", "bin/dsworker"}};
    write_bundle(at + "b1", files);
    REQUIRE(std::system(("touch -d 2001-01-01 " + at + "one").c_str()) == 0);
    write_bundle(at + "b2", {files.rbegin(), files.rend()});
    CHECK(folder.read("b1") == folder.read("b2"));
    int64_t done = 0, of_all = 0;
    write_bundle(at + "b3", files, [&](int64_t bytes, int64_t bytes_all) {
        CHECK(bytes >= done);
        done = bytes;
        of_all = bytes_all;
    });
    CHECK(done == 3'000'003);
    CHECK(of_all == done);
    const auto give_up = [](int64_t bytes, int64_t) {
        if (bytes > 1'000'000) fail(ExitCode::kInterrupted, "enough");
    };
    CHECK_THROWS_WITH(write_bundle(at + "b4", files, give_up), "enough");
    CHECK_FALSE(std::filesystem::exists(at + "b4"));
    const ScratchFolder scratch;
    const auto entries = unpack_bundle(at + "b1", scratch.path());
    REQUIRE(entries.size() == 2);
    CHECK(entries[0].name == "bin/dsworker");
    CHECK(entries[0].mode == 0755);
    CHECK(std::system(("cmp " + at + "one " + scratch.path() + "/bin/dsworker").c_str()) == 0);
    if (std::system("command -v zstd >/dev/null") == 0) {
        CHECK(std::system(("mkdir " + at + "t && zstd -qdc " + at + "b1 | tar -xf - -C " + at +
                           "t && cmp " + at + "t/bin/dsworker " + at + "one && test -e " + at +
                           "t/files/two")
                              .c_str()) == 0);
    }
    // A bundle that is cut at any place is refused, and one with a flipped bit too.
    const std::string whole = folder.read("b1");
    for (const size_t length : {size_t{0}, size_t{10}, whole.size() / 2, whole.size() - 5}) {
        write_file(at + "cut", whole.substr(0, length));
        const ScratchFolder other;
        CHECK_THROWS_AS(unpack_bundle(at + "cut", other.path()), Error);
    }
    std::string flipped = whole;
    flipped[whole.size() / 2] = static_cast<char>(flipped[whole.size() / 2] ^ 1);
    write_file(at + "flipped", flipped);
    const ScratchFolder other;
    CHECK_THROWS_AS(unpack_bundle(at + "flipped", other.path()), Error);
}

TEST_CASE("a hostile bundle is refused, with the reason") {
    TemporaryFolder folder;
    const std::string end = ustar_end();
    CHECK(bundle_refusal(folder, manifest("files/a", "x") + entry("files/a", "x") + end) ==
          "accepted");
    struct Row {
        std::string tar, cause;
    };
    std::string link = entry("files/a", "x");
    link[156] = '2';  // a symbolic link; the checksum is corrected
    int64_t sum = 0;
    for (size_t i = 0; i < 512; ++i)
        sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(link[i]);
    char digits[8];
    std::snprintf(digits, sizeof digits, "%06o", static_cast<unsigned>(sum));
    link.replace(148, 7, digits, 7);
    const Row rows[] = {
        {manifest("files/a", "x") + link + end, "not a plain file"},
        {manifest("files/a", "x") + entry("files/a", "y") + end, "differ from its manifest"},
        {manifest("files/a", "x") + entry("files/b", "x") + end, "missing from the manifest"},
        {manifest("files/a", "x") + entry("files/a", "xx") + end,
         "has another size than in the manifest"},
        {manifest("files/a", "x") + entry("files/a", "x") + entry("files/a", "x") + end, "twice"},
        {manifest("files/a", "x") + end, "missing"},
        {entry("files/a", "x") + end, "its first file is not manifest.json"},
        {entry("manifest.json", "{") + end, "damaged"},
        {entry("manifest.json", "{\"format\":\"other\"}") + end, "another format"},
        {described("files/a", "1e300", "420"), "damaged: it gives `files/a` a bad size or mode"},
        {described("files/a", "-1", "420"), "damaged: it gives `files/a` a bad size or mode"},
        {described("files/a", "1", "2541"), "damaged: it gives `files/a` a bad size or mode"},
        {described("files/a", "1", "420", 2), "`files/a` occurs twice in its manifest.json"},
        {"", "truncated"},
        {manifest("files/a", "x") + entry("files/a", "x").substr(0, 512), "cut off"},
    };
    for (const Row& row : rows) {
        const std::string cause = bundle_refusal(folder, row.tar);
        INFO(row.cause << " / " << cause);
        CHECK(cause.find(row.cause) != std::string::npos);
    }
}

TEST_CASE("a bundle has dslaunch's own places and names, and no other is unpacked") {
    TemporaryFolder folder;
    for (const std::string name :
         {"bin/dslaunch", "bin/dsworker", "bin/libdsl_cuda.so", "lib/dslaunch/libssh.so.4",
          "lib/dslaunch/libc10.so", "lib/dslaunch/ld-linux-x86-64.so.2", "files/a",
          "files/m/sub/.hidden"}) {
        CHECK(bundle_refusal(folder, manifest(name, "x") + entry(name, "x") + ustar_end()) ==
              "accepted");
    }
    for (const std::string name : {".ssh/authorized_keys",
                                   "bin/python3",
                                   "bin/x/dslaunch",
                                   "bin/dslaunch2",
                                   "lib/libc.so.6",
                                   "lib/dslaunch/x/liba.so",
                                   "lib/dslaunch/.so",
                                   "lib/dslaunch/liba.sox",
                                   "lib/dslaunch/liba",
                                   "lib/dslaunch/../../bin/dslaunch",
                                   "files/.ssh/authorized_keys",
                                   "files/../.bashrc",
                                   "files/a/../../b",
                                   "files//a",
                                   "files/a/",
                                   "files/",
                                   "files/.",
                                   "/etc/passwd",
                                   "../a",
                                   "",
                                   "bin/",
                                   "bin/./dsworker",
                                   "FILES/a"}) {
        INFO(name);
        const std::string cause =
            bundle_refusal(folder, manifest(name, "x") + entry("files/a", "x") + ustar_end());
        CHECK_THAT(cause, Catch::Contains("a bundle cannot contain") &&
                              Catch::Contains("the first name must not begin with a dot"));
        write_file(folder.path() + "/local", "x");
        CHECK_THROWS_WITH(write_bundle(folder.path() + "/made", {{folder.path() + "/local", name}}),
                          Catch::Contains("a bundle cannot contain"));
    }
}

TEST_CASE("folders are listed with all in them, and what is no file is refused by name") {
    TemporaryFolder folder;
    const std::string at = folder.path() + "/m";
    REQUIRE(std::system(
                ("mkdir -p " + at + "/sub && touch " + at + "/b " + at + "/sub/a").c_str()) == 0);
    const auto files = list_files(at + "/");
    REQUIRE(files.size() == 2);
    CHECK(files[0].below == "m/b");
    CHECK(files[1].below == "m/sub/a");
    CHECK(files[1].local_path == at + "/sub/a");
    CHECK(list_files(at + "/b")[0].below == "b");
    REQUIRE(std::system(("mkfifo " + at + "/pipe").c_str()) == 0);
    CHECK_THROWS_WITH(list_files(at), Catch::Contains(at + "/pipe: is not a regular file"));
    CHECK_THROWS_AS(list_files(at + "/none"), Error);
}

TEST_CASE("commands on hosts take the host options of run, their own, and a program's words") {
    std::string own;
    HostCommand syntax{{},
                       {{"own-option", "VALUE", "help", [&](const std::string& v) { own = v; }}}};
    using Words = std::vector<std::string>;
    ParsedCommand parsed = parse_host_command(
        Words{"--hostfile", "h", "a", "--own_option=x=y", "--num_nodes", "2", "b"}, syntax);
    CHECK(parsed.hosts.hostfile == "h");
    CHECK(parsed.hosts.filter.num_nodes == 2);
    CHECK(own == "x=y");
    CHECK(parsed.words == Words{"a", "b"});
    syntax.run_rows = RunRows::kProgram;
    parsed =
        parse_host_command(Words{"-H", "h", "--env", "A=1", "ls", "--own-option", "-l"}, syntax);
    CHECK(parsed.words == Words{"ls", "--own-option", "-l"});
    CHECK(parsed.hosts.env == Words{"A=1"});
    parsed = parse_host_command(Words{"--", "--own-option"}, syntax);
    CHECK(parsed.words == Words{"--own-option"});
    CHECK_THROWS_AS(parse_host_command(Words{"--nproc_per_node", "2"}, syntax), Error);
    syntax.run_rows = RunRows::kJob;
    syntax.options.push_back({"json", "", "help", [&](const std::string&) { own = "json"; }});
    parsed = parse_host_command(Words{"--nproc_per_node", "2", "--json", "--dry-run"}, syntax);
    CHECK(parsed.hosts.filter.num_gpus == 2);
    CHECK(parsed.hosts.dry_run);
    CHECK(own == "json");  // the command's own --json, not `run`'s
    CHECK_FALSE(parsed.hosts.json);
    for (const Words& bad :
         {Words{"--hostfyle", "h"}, Words{"--own-option"}, Words{"--steps", "3"},
          Words{"--force-multi=1"}, Words{"-H", "a", "-H", "b"}, Words{"--ssh-port", "x"}}) {
        INFO(bad.front());
        CHECK_THROWS_AS(parse_host_command(bad, syntax), Error);
    }
}

// Groups of equal outputs, archives, and the loader's list.
#include "launch/fleet/fleet.h"

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "launch/files/ustar.h"
#include "launch/machine/elf_needs.h"
#include "launch/push/push_sender.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/temporary_folder.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

TEST_CASE("equal texts form a group, in the order of their first host") {
    const auto groups = group_equal({"x", "y", "x", "", "y"});
    REQUIRE(groups.size() == 3);
    CHECK(groups[0].hosts == std::vector<size_t>{0, 2});
    CHECK(groups[1].hosts == std::vector<size_t>{1, 4});
    CHECK(groups[2].hosts == std::vector<size_t>{3});
}

TEST_CASE("an archive's header reads back, and a hostile one is refused") {
    const std::string long_name = std::string(100, 'd') + "/" + std::string(99, 'f');
    for (const std::string& name : {std::string("bin/dslaunch"), long_name}) {
        const auto entry = parse_ustar_header(ustar_header({name, 123456, 0755, 42}));
        REQUIRE(entry);
        CHECK(entry->name == name);
        CHECK(entry->bytes == 123456);
        CHECK(entry->mode == 0755);
        CHECK(entry->modified_s == 42);
    }
    CHECK_FALSE(parse_ustar_header(std::string(512, '\0')));
    for (const std::string name : {"../x", "/x", "a/../../x", "a//b", "./a", "a/.", ".."}) {
        INFO(name);
        CHECK_THROWS_AS(parse_ustar_header(ustar_header({name, 0, 0644, 0})), Error);
    }
    std::string header = ustar_header({"x", 0, 0644, 0});
    header[0] = 'y';
    CHECK_THROWS_AS(parse_ustar_header(header), Error);  // the checksum
    CHECK_THROWS_AS(ustar_header({std::string(300, 'x'), 0, 0644, 0}), Error);
    CHECK_THROWS_AS(ustar_header({"x", int64_t{1} << 33, 0644, 0}), Error);
}

TEST_CASE("the loader's list gives what has to be sent, without the C library and the driver") {
    CHECK(parse_library_list("\tstatically linked\n").empty());
    const auto libraries = parse_library_list(
        "\tlinux-vdso.so.1 (0x0)\n\tlibssh.so.4 => /lib/libssh.so.4 (0x1)\n"
        "\tlibc.so.6 => /lib/libc.so.6 (0x2)\n\t/lib64/ld-linux-x86-64.so.2 (0x3)\n"
        "\tlibcuda.so.1 => not found\n\tlibgone.so.1 => not found\n"
        "\tlibstdc++.so.6 => /usr/lib/x (y)/libstdc++.so.6 (0x4)\n");
    REQUIRE(libraries.size() == 3);
    CHECK(libraries[0].path == "/lib/libssh.so.4");
    CHECK(libraries[1].name == "libgone.so.1");
    CHECK(libraries[1].path.empty());
    CHECK(libraries[2].path == "/usr/lib/x (y)/libstdc++.so.6");
}

TEST_CASE("the programs of this machine have libraries, and the C library is none of them") {
    // The loader would take /proc/self/exe for itself.
    const auto libraries = list_libraries(std::filesystem::canonical("/proc/self/exe").string());
    CHECK(libraries.size() > 3);
    for (const SharedLibrary& library : libraries) CHECK(library.name != "libc.so.6");
    CHECK_THROWS_AS(list_libraries("/etc/hostname"), Error);
}

TEST_CASE("the command that brings dslaunch holds nothing that a shell would take for its own") {
    const std::string command = bootstrap_command(installation_paths(), "0123abcd");
    CHECK(command.starts_with("exec sh -c '"));
    const std::string inside = command.substr(12, command.size() - 13);
    // The script's own expansions are `$m`, `$s`, `$?` and `*`; there are no others.
    CHECK(inside.find('\'') == std::string::npos);
    CHECK(inside.find('`') == std::string::npos);
    CHECK(inside.find("$(") == std::string::npos);
}

TEST_CASE("a host with another kind of processor keeps its dslaunch") {
    const TemporaryFolder folder;
    std::ofstream(folder.path() + "/uname") << "#!/bin/sh\necho riscv64\n";
    std::filesystem::permissions(folder.path() + "/uname", std::filesystem::perms::owner_all);
    const std::string command = bootstrap_command(installation_paths(), "0123abcd");
    std::ofstream(folder.path() + "/script") << command << "\n";
    JobProcess process(folder, {"/usr/bin/env", "PATH=" + folder.path() + ":/usr/bin:/bin", "sh",
                                folder.path() + "/script"});
    CHECK(process.wait() == 1);
    CHECK_THAT(process.err(), Catch::Contains("this host has a processor of kind riscv64"));
}

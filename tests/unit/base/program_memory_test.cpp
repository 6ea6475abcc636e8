// The memory that a process uses for its program, read from a made-up /proc/self/smaps.
#include "base/machine/program_memory.h"

#include "base/error.h"
#include "support/catch.h"
#include "support/fake_root.h"

using namespace dslaunch;

TEST_CASE("the program is what is anonymous, and the unchanged pages of files that are executed") {
    const test::FakeRoot root;
    root.write("/proc/self/smaps",
               "5500-5600 r--p 00000000 fe:00 11 /opt/bin/dsworker\nRss:  100 kB\n"
               "Anonymous:  0 kB\nVmFlags: rd mr mw me\n"
               "5600-5700 r-xp 00001000 fe:00 11 /opt/bin/dsworker\nRss:  200 kB\n"
               "Anonymous:  0 kB\n"
               "5700-5800 rw-p 00002000 fe:00 11 /opt/bin/dsworker\nRss:  50 kB\n"
               "Anonymous:  40 kB\n"
               "5800-5900 rw-p 00000000 00:00 0 [heap]\nRss:  1000 kB\nAnonymous:  1000 kB\n"
               "7000-7100 rw-p 00000000 00:00 0 \nRss:  500 kB\nAnonymous:  500 kB\n"
               "7100-7200 r--p 00000000 fe:00 12 /data/a model.pt\nRss:  9000 kB\n"
               "Anonymous:  0 kB\n"
               "7200-7300 rw-s 00000000 00:01 13 /memfd:arena (deleted)\nRss:  7000 kB\n"
               "Anonymous:  0 kB\n");
    const ProgramMemory memory = read_program_memory(root.path());
    CHECK(memory.own == Bytes{1540 << 10});
    CHECK(memory.code == Bytes{310 << 10});
}

TEST_CASE("a program whose memory cannot be read is refused") {
    const test::FakeRoot root;
    try {
        (void)read_program_memory(root.path());
        FAIL("nothing was thrown");
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::kSetup);
        CHECK_THAT(error.what(), Catch::Contains("/proc/self/smaps: No such file"));
    }
}

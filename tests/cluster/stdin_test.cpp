// The launcher's stdin reaches only rank 0 of a job on this machine, as with deepspeed and
// torchrun. Questions and progress bars are shown before their lines end.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/text.h"
#include "support/catch.h"
#include "support/job_end.h"
#include "support/job_process.h"
#include "support/pty_process.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::test;

namespace {

using Words = std::vector<std::string>;

// Returns a shell command that pipes the output of INPUT, also a shell command, into dslaunch with
// WORDS.
Words with_input(const std::string& input, const std::string& words) {
    return {"sh", "-c", fmt::format("{} | {} -q {}", input, kDslaunch, words)};
}

// Returns the script of a rank that asks QUESTION and then prints its input.
std::string reader(const std::string& question) {
    return fmt::format(
        "sh -c 'printf \"{}\"; sleep 0.3; IFS= read -r a; echo \"rank $RANK read <$a>\"; cat'",
        question);
}

}  // namespace

TEST_CASE("rank 0 of a job on this machine reads what the launcher is given, the others nothing") {
    const TemporaryFolder folder;
    JobProcess job(folder, with_input("printf 'one\\ntwo\\nthree'",
                                      "--device cpu --num_gpus 3 " + reader("")));
    CHECK(job.wait() == 0);
    INFO(job.err());
    for (const char* line : {"[0] rank 0 read <one>\n", "[0] two\n", "[0] three\n",
                             "[1] rank 1 read <>\n", "[2] rank 2 read <>\n"})
        CHECK(mentions(job.out(), line));
    SECTION("what rank 0 does not read stays for the next program") {
        JobProcess loop(folder, {"sh", "-c",
                                 fmt::format("printf 'a\\nb\\n' | while read x; do {} -q --device "
                                             "cpu sh -c 'echo got $0' $x; done",
                                             kDslaunch)});
        CHECK(loop.wait() == 0);
        CHECK(loop.out() == "[0] got a\n[0] got b\n");
    }
    SECTION("a closed stdin is none") {
        JobProcess closed(
            folder,
            {"sh", "-c", fmt::format("exec {} -q --device cpu {} <&-", kDslaunch, reader(""))});
        CHECK(closed.wait() == 0);
        CHECK(closed.out() == "[0] rank 0 read <>\n");
    }
    SECTION("an attempt after a failure reads on") {
        JobProcess again(folder,
                         with_input("printf 'one\\ntwo\\n'",
                                    "--device cpu --max_restarts 1 sh -c 'IFS= read -r a; echo $a; "
                                    "exit $((1 - TORCHELASTIC_RESTART_COUNT))'"));
        CHECK(again.wait() == 0);
        CHECK(again.out() == "[0] one\n[0] two\n");
    }
}

TEST_CASE("rank 0 asks on the terminal, and its question is seen before the answer is typed") {
    PtyProcess job(
        {"sh", "-c",
         fmt::format("exec {} -q --device cpu --num_gpus 2 {}", kDslaunch, reader("name? "))});
    job.type("Ada\n\x04");
    CHECK(job.wait() == 0);
    INFO(job.shown());
    CHECK(mentions(job.shown(), "[0] name? \x1b[K"));
    CHECK(mentions(job.shown(), "[0] name? rank 0 read <Ada>"));
    CHECK(mentions(job.shown(), "[1] name? rank 1 read <>"));
}

TEST_CASE("a progress bar is seen in a pipe as it moves, not when its line ends") {
    const TemporaryFolder folder;
    // The bar continues only after the test has seen the step before. A launcher that waits for a
    // newline would hang.
    const std::string script = fmt::format(
        "printf \"\\r 0%%\" >&2; while [ ! -e {0}/go ]; do sleep 0.01; done; printf "
        "\"\\r100%%\\n\" >&2",
        folder.path());
    JobProcess job(folder, {kDslaunch, "-q", "--device", "cpu", "sh", "-c", script});
    CHECK(wait_until([&] { return mentions(job.err(), "[0]  0%\r"); }));
    REQUIRE(std::system(("touch " + folder.path() + "/go").c_str()) == 0);
    CHECK(job.wait() == 0);
    CHECK(job.err() == "[0]  0%\r[0] 100%\n");
    // If a bar was already shown completely, only the end of its line follows.
    JobProcess whole(folder, {kDslaunch, "-q", "--device", "cpu", "sh", "-c",
                              "printf '\\r50%%'; sleep 0.2; printf '\\r100%%'; sleep 0.2; echo"});
    CHECK(whole.wait() == 0);
    CHECK(whole.out() == "[0] 50%\r[0] 100%\r\n");
}

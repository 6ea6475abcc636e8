#include "base/terminal/progress.h"

#include <unistd.h>

#include "base/fd.h"
#include "support/catch.h"
#include "support/pty_process.h"

namespace dslaunch {

namespace {

TimePoint at(double seconds) {
    return TimePoint(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
}

// Waits for a key at the terminal.
void await_key() {
    char key = 0;
    while (::read(0, &key, 1) < 0) {
    }
}

}  // namespace

TEST_CASE("progress is the part of the work, its time or how much is done, and the time left") {
    ProgressText work(at(0));
    work.begin(at(0), "reading the model");
    CHECK(work.text(at(12.5)) == "reading the model  12 s");
    work.begin(at(20), "evaluating", 120, "samples");
    CHECK(work.text(at(23)) == "evaluating  0/120 samples  3 s");
    work.done(40);
    // 40 samples in 12 s are 3.33 a second, so 80 samples take 24 s more.
    CHECK(work.text(at(32)) == "evaluating  40/120 samples  3.33 samples/s  left 0:00:24");
    work.begin(at(40), "sending", 0, "MiB");
    CHECK(work.text(at(42)) == "sending  2 s");
    work.done(5);
    CHECK(work.text(at(42)) == "sending  5 MiB  2.5 MiB/s");
    work.total(10);
    CHECK(work.text(at(42)) == "sending  5/10 MiB  2.5 MiB/s  left 0:00:02");
}

TEST_CASE("progress is shown from the first second on, and told so that 30 s are never silent") {
    ProgressText work(at(0));
    CHECK(!work.is_shown(at(0.9)));
    CHECK(work.is_shown(at(1)));
    CHECK(!work.is_told(at(9)));
    CHECK(work.is_told(at(10)));
    CHECK(!work.is_told(at(29)));
    CHECK(work.is_told(at(30)));
    CHECK(!work.is_told(at(49)));
    // The last text of this work may be 20 s old when the next work begins.
    ProgressText next(at(49));
    CHECK(next.is_told(at(59)));
}

TEST_CASE("on a terminal progress moves, log lines stand alone, and the result follows nothing") {
    test::PtyProcess child(
        [] {
            ::unsetenv("NO_COLOR");
            Progress progress("work", "reading");
            await_key();
            log_warn("work", "a warning");
            progress.end();
            static_cast<void>(write_full(1, std::string_view("result\n")));
            return 0;
        },
        40);
    REQUIRE(child.wait_for("\rreading  1 s\x1b[J\r"));
    REQUIRE(child.wait_for("\rreading  2 s\x1b[J\r"));
    child.type("\n");
    CHECK(child.wait() == 0);
    const std::string& shown = child.shown();
    INFO(shown);
    const size_t warning = shown.find(" \x1b[33mwarning\x1b[0m work: a warning\r\n\rreading  ");
    REQUIRE(warning != std::string::npos);
    // The time and the name of the line's sender come before its text.
    CHECK(shown.substr(0, warning).rfind("\r\x1b[J") > shown.substr(0, warning).rfind("reading"));
    CHECK(shown.ends_with("\x1b[J\r\r\x1b[Jresult\r\n"));
}

TEST_CASE("a work that is over soon shows nothing, and so does one whose log is quiet") {
    test::PtyProcess soon([] {
        const Progress progress("work", "reading");
        return 0;
    });
    CHECK(soon.wait() == 0);
    CHECK(soon.shown().empty());
    test::PtyProcess quiet([] {
        set_log_level(LogLevel::kWarn);
        Progress progress("work", "reading");
        progress.done(1);
        await_key();
        return 0;
    });
    quiet.type("\n");
    CHECK(quiet.wait() == 0);
    CHECK(quiet.shown().find("reading") == std::string::npos);
}

}  // namespace dslaunch
